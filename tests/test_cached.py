"""Cached nodes: keyed by model, settings and what they read; a hit replays no costs."""

from typing import Any

import pytest
from langchain_core.runnables import ConfigurableField
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models import ChatEvaluator, PromptedReflectionLLM
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval
from selfcorrect_rag.nodes.node import cache_policy
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, document, segment
from tests.test_node import both, chat, invoke

QUESTION: Any = {"question": "Who?"}
CACHED = ("decide_retrieval", "generate_and_critique")


class Named(ScriptedReflectionLLM):
    """Models of one name answer alike."""

    name: str = "red"

    @property
    def identity(self) -> str:
        return self.name


def named(name: str) -> Named:
    return Named(name=name, write=lambda _: segment(f"{name}.", RELEVANT, FULL, USEFUL))


def make(llm: Any, cache: Any, *titles: str, **options: Any) -> Any:
    documents = [document(title) for title in titles or ("A",)]
    return create_self_rag(llm, lambda _: documents, cache=cache, **options)


@both
def test_a_hit_asks_nothing_costs_nothing_and_answers_the_same(asynchronous: bool) -> None:
    llm = named("red")
    graph = make(llm, InMemoryCache(), checkpointer=InMemorySaver())
    graph = graph.with_config({"configurable": {"thread_id": "1"}})
    first, second = (
        invoke(graph, {"messages": [("user", "Who?")]}, asynchronous) for _ in range(2)
    )
    assert len(llm.calls) == 2
    assert first["usage"]["model_calls"] == 2
    assert second["usage"]["model_calls"] == second["usage"]["generated_tokens"] == 0
    assert [run["step"] for run in second["route"]] == [run["step"] for run in first["route"]]
    assert all(run["cached"] is (run["step"] in CACHED) for run in second["route"])
    for key in ("answer", "citations", "candidates", "score", "notes"):
        assert first[key] == second[key]
    assert [m.type for m in second["messages"]] == ["human", "ai", "human", "ai"]


@pytest.mark.parametrize(
    ("change", "calls"),
    [
        ({}, [0, 0]),
        ({"context": {"segment_tokens": 50}}, [1, 1]),
        ({"titles": ["B"]}, [0, 1]),
        ({"question": "What?"}, [1, 1]),
        ({"llm": "blue"}, [1, 1]),
    ],
    ids=str,
)
def test_a_key_holds_the_model_the_settings_and_what_the_node_reads(
    change: Any, calls: list[int]
) -> None:
    cache: Any = InMemoryCache()
    make(named("red"), cache).invoke(QUESTION)
    llm = named(change.get("llm", "red"))
    graph = make(llm, cache, *change.get("titles", ["A"]))
    question = {"question": change.get("question", "Who?")}
    result = graph.invoke(question, context=change.get("context"))
    steps = {run["step"]: run["model_calls"] for run in result["route"]}
    assert [steps[step] for step in CACHED] == calls
    assert result["answer"] == f"{llm.name}.", "two models on one cache do not collide"


def test_a_result_that_a_limit_cut_is_not_taken_for_a_whole_one() -> None:
    graph = make(named("red"), InMemoryCache(), "A", "B")
    cut = graph.invoke(QUESTION, context={"max_tokens": 110, "mode": "always"})
    assert (len(cut["candidates"]), cut["stopped"]) == (1, "max_tokens")
    whole = graph.invoke(QUESTION, context={"mode": "always"})
    assert (len(whole["candidates"]), whole["stopped"]) == (2, None)


def test_without_a_cache_there_is_no_policy_and_configurable_models_have_none() -> None:
    nodes = make(named("red"), None).builder.nodes.values()
    assert all(node.cache_policy is None for node in nodes)
    model = chat("Red.").configurable_fields(responses=ConfigurableField(id="responses"))
    llm = PromptedReflectionLLM(model)
    for asked in (model, llm, ChatEvaluator(model)):
        assert cache_policy(decide_retrieval(llm), asked, []) is None
