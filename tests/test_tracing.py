"""Traces, in which each call is one run with its model, tokens and scores; sync and async alike."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.documents import Document
from langchain_core.globals import set_debug, set_llm_cache
from langchain_core.runnables import RunnableConfig
from langchain_core.tracers.context import collect_runs, tracing_v2_enabled
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langchain_core.tracers.schemas import Run
from langsmith import Client

from selfcorrect_rag import create_crag, create_self_rag
from selfcorrect_rag.search import RetrieverWebSearch
from tests.crag_runs import WordEvaluator
from tests.four_graphs import ALL, ANSWER, PLAIN, build, gossip, write
from tests.providers import LOGPROBS, Provider, chat
from tests.scripted import ScriptedLLM, document, timeless
from tests.test_faults import FORMS, ask
from tests.test_prompted_llm import reader

GRAPHS = pytest.mark.parametrize("graph", ALL)


class Collector(RunCollectorCallbackHandler):
    """Hears of runs in their order, as LangSmith's tracer does."""

    run_inline = True


def shelf(query: str) -> list[Document]:
    return [document("Emma", "Vague."), document("Other", "Vague.")]


async def traced(graph: Any, form: str) -> list[tuple[Run, Run | None]]:
    """All runs, each with its parent."""
    collector = Collector()
    await ask(graph, form, PLAIN, RunnableConfig(callbacks=[collector]))
    found: list[tuple[Run, Run | None]] = [(run, None) for run in collector.traced_runs]
    for run, _ in found:  # which grows
        found += [(child, run) for child in run.child_runs]
    return found


def of(runs: list[tuple[Run, Run | None]], kind: str) -> list[tuple[str, str]]:
    """Names of the runs of a kind, and of their parents."""
    return [(run.name, parent.name) for run, parent in runs if run.run_type == kind and parent]


@GRAPHS
async def test_stream_and_astream(graph: str) -> None:
    made = build(graph)
    options: Any = {"stream_mode": ["updates", "custom", "values"], "context": {"passages": 2}}
    now = list(made.stream(PLAIN, **options))
    later = [chunk async for chunk in made.astream(PLAIN, **options)]
    assert timeless(now) == timeless(later)


@GRAPHS
def test_only_the_answer_is_heard_and_nothing_of_a_quiet_run(graph: str) -> None:
    def said(**config: Any) -> str:
        chunks = build(graph).stream(PLAIN, RunnableConfig(**config), stream_mode="messages")
        return "".join(message.text for message, _ in chunks)

    assert said()
    assert "LEAK" not in said()
    assert said(tags=["nostream"]) == ""


@FORMS
@GRAPHS
async def test_model_calls_name_their_model_and_retrievals_are_runs(graph: str, form: str) -> None:
    runs = await traced(build(graph), form)
    models = [run for run, _ in runs if run.run_type == "llm"]
    assert models
    for run in models:
        about = run.extra["metadata"]
        assert run.name == "FakeListChatModel" or about["ls_model_name"] == "scripted"
        assert not run.outputs["llm_output"], "a batch's sum would count its prompts twice"
        assert about["ls_provider"] in ("scripted", "fakelistchatmodel")
        assert about["ls_model_type"] == ("llm" if about["ls_provider"] == "scripted" else "chat")
    assert ("gossip", "retrieve") in of(runs, "retriever")
    assert ("FakeListChatModel", "gossip") in of(runs, "llm"), "under the retriever that asks it"
    assert not of(runs, "chain").count(("gossip", "retrieve")), "once"


@pytest.fixture
def _plain() -> Iterator[None]:
    yield
    set_debug(False)
    set_llm_cache(None)


@pytest.mark.usefixtures("_plain")
@FORMS
async def test_whatever_listens_hears_a_reflecting_model(form: str, capsys: Any) -> None:
    """Listeners of LangChain's that join each call anew, those of the model itself, and caches."""

    async def answer(**fields: Any) -> int:
        """Return how many prompts reached the model."""
        llm = ScriptedLLM(write=write, **fields)
        await ask(create_self_rag(llm, gossip), form, PLAIN)
        return sum(map(len, llm.calls))

    own, client, cache = Collector(), MagicMock(Client), InMemoryCache()
    assert 2 < await answer(callbacks=[own]) == len(own.traced_runs)
    with collect_runs() as collector, get_usage_metadata_callback() as usage:
        prompts = await answer()
    names = {run.name for run in collector.traced_runs}
    assert names == {"self_rag", "ScriptedLLM", "gossip"}
    told = usage.usage_metadata["scripted"]
    assert told["input_tokens"] == 7 * prompts, "each prompt's own"
    assert told["output_tokens"] == 10 * (prompts - 1) + 1
    with tracing_v2_enabled(client=client):
        await answer()
    client.create_run.assert_called()
    assert await answer(cache=cache) > await answer(cache=cache) == 0
    set_llm_cache(cache)
    assert await answer() == 0
    set_llm_cache(None)
    set_debug(True)
    await answer()
    assert "llm:ScriptedLLM] Entering LLM run" in capsys.readouterr().out


@FORMS
async def test_each_part_of_crag_is_one_run(form: str) -> None:
    web = RetrieverWebSearch(gossip, "pages")
    runs = await traced(create_crag(chat(ANSWER), shelf, WordEvaluator(), web), form)
    assert of(runs, "retriever") == [("shelf", "retrieve"), ("gossip", "web_search")]
    assert {parent for _, parent in of(runs, "llm")} == {"gossip", "generate"}
    graded = [(run, parent.name) for run, parent in runs if parent and run.name == "WordEvaluator"]
    nodes = {"grade_documents", "refine_strips", "select_web_strips"}
    assert {name for _, name in graded} == nodes
    for run, _ in graded:
        assert run.inputs["question"] == PLAIN["question"]
        assert run.outputs == {"scores": WordEvaluator().score("", run.inputs["passages"])}


async def test_tokens_of_a_prompted_model_are_counted_once() -> None:
    graph = create_self_rag(Provider(answer=reader, **LOGPROBS), shelf)
    told = {"Provider": 0, "PromptedReflectionLLM": 0}
    for run, _ in await traced(graph, "async"):
        if run.run_type == "llm" and not run.error:  # options that the provider refuses
            ((generation,),) = run.outputs["generations"]
            usage = generation["message"]["kwargs"].get("usage_metadata") or {}
            told[run.name] += usage.get("total_tokens", 0)
    usage = graph.invoke(PLAIN)["usage"]
    assert told["Provider"] == usage["prompt_tokens"] + usage["generated_tokens"] > 0
    assert told["PromptedReflectionLLM"] == 0
