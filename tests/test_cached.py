"""Results of nodes kept in a cache: hits, misses, and what must never be taken from there."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import HumanMessage
from langchain_core.runnables import ConfigurableField
from langgraph.cache.base import BaseCache
from langgraph.cache.memory import InMemoryCache
from langgraph.cache.sqlite import SqliteCache
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.errors import EvaluatorFailed
from selfcorrect_rag.models import ChatEvaluator, RetrievalEvaluator, T5Evaluator
from selfcorrect_rag.reader import Reader, ReaderEvaluator
from selfcorrect_rag.state import Segment
from selfcorrect_rag.state import total
from selfcorrect_rag.thresholds import Thresholds
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.scripted import FULL, RELEVANT, USEFUL, ScriptedReflectionLLM, document, echo, segment
from tests.tiny_evaluators import bert, bert_tokenizer, t5, t5_tokenizer
from tests.tiny_evaluators import make as make_t5

PASSAGES = [document("Gold"), document("Vague")]
QUESTION: Any = {"question": "Who wrote it?"}


class CountingChatModel(FakeListChatModel):
    """Counts its calls over all copies."""

    asked: list[str] = []  # noqa: RUF012  a pydantic field: each model has its own
    responses: list[str] = ["George Eliot [1]."]  # noqa: RUF012

    def _call(self, messages: Any, *args: Any, **kwargs: Any) -> str:
        self.asked.append(messages[-1].content)
        return super()._call(messages, *args, **kwargs)


def write(prompt: str) -> Segment:
    return segment("an answer", RELEVANT, FULL, USEFUL)


def retriever(query: str) -> list[Document]:
    return PASSAGES


def uncosted(result: dict[str, Any]) -> dict[str, Any]:
    """All but what it cost, which is less where results were kept."""
    return {name: value for name, value in result.items() if name not in ("costs", "usage")}


def test_self_rag_asks_the_model_once() -> None:
    llm = ScriptedReflectionLLM(write=write)
    graph = create_self_rag(llm, retriever, cache=InMemoryCache())
    first = uncosted(graph.invoke(QUESTION))
    assert len(llm.calls) == 2
    assert uncosted(graph.invoke(QUESTION)) == first
    assert len(llm.calls) == 2
    graph.invoke({"question": "Another?"})
    assert len(llm.calls) == 4


def test_a_result_that_was_found_costs_no_call() -> None:
    llm = ScriptedReflectionLLM(write=write)
    found = [document("Gold", "Once.")]
    graph = create_self_rag(llm, lambda query: list(found), cache=InMemoryCache())

    def calls() -> tuple[int, int, dict[str, int]]:
        result = graph.invoke(QUESTION)
        usage = result["usage"]
        costs = {step: cost["model_calls"] for step, cost in result["costs"].items()}
        assert sum(costs.values()) == usage["model_calls"]
        assert usage["prompt_tokens"] == 7 * usage["prompts"]
        return usage["prompts"], usage["retrievals"], {s: n for s, n in costs.items() if n}

    assert calls() == (2, 1, {"decide_retrieval": 1, "generate_and_critique": 1})
    assert calls() == (0, 1, {})
    found[:] = [document("Gold", "Twice.")]
    assert calls() == (1, 1, {"generate_and_critique": 1}), "the decision was found"


async def test_sync_and_async_share_results() -> None:
    llm = ScriptedReflectionLLM(write=write)
    graph = create_self_rag(llm, retriever, cache=InMemoryCache())
    first = uncosted(await graph.ainvoke(QUESTION))
    assert uncosted(graph.invoke(QUESTION)) == first
    again = await graph.ainvoke(QUESTION)
    assert uncosted(again) == first
    assert total(again["costs"])["model_calls"] == 0
    assert len(llm.calls) == 2


def test_a_run_with_other_settings_asks_again() -> None:
    llm = ScriptedReflectionLLM(write=write, retrieval=0.4)
    graph = create_self_rag(llm, retriever, cache=InMemoryCache())
    retrieved = [
        graph.invoke(QUESTION, context={"threshold": threshold})["retrieval"]["retrieve"]  # type: ignore[arg-type]
        for threshold in (0.2, 0.5, 0.2)
    ]
    assert retrieved == [True, False, True]
    assert len(llm.calls) == 4  # the third run is the first one's


def test_other_passages_are_judged_anew() -> None:
    llm = ScriptedReflectionLLM(write=write)
    found = [document("Gold", "Once.")]
    graph = create_self_rag(llm, lambda query: list(found), cache=InMemoryCache())
    graph.invoke(QUESTION)
    found[:] = [document("Gold", "Twice.")]
    assert graph.invoke(QUESTION)["passages"][0].page_content == "Twice."
    assert len(llm.calls) == 3  # the decision is the same, the candidates are not


KEYS = [{1: "a", "b": 2}, {("a",): 1}, {None: 1, "a": 2}, {"d": [{2: 1, "x": {3.5: {1, 2}}}]}]


@pytest.mark.parametrize("metadata", KEYS, ids=str)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_metadata_of_every_kind_tells_passages_apart(metadata: Any, asynchronous: bool) -> None:
    found: list[Any] = []
    evaluator = WordEvaluator()
    graph = create_crag(
        CountingChatModel(),
        lambda query: [Document("Gold", metadata=found[-1])],
        evaluator,
        PagesWebSearch(),
        cache=InMemoryCache(),
    )

    def calls(given: Any) -> int:
        found.append(given)
        before = len(evaluator.calls)
        asyncio.run(graph.ainvoke(QUESTION)) if asynchronous else graph.invoke(QUESTION)
        return len(evaluator.calls) - before

    assert calls(metadata) > 0
    assert calls(dict(reversed(metadata.items()))) == 0
    assert calls({**metadata, "d": [{2: 1, "x": 0}]}) > 0
    assert calls({repr(key): value for key, value in metadata.items()}) > 0
    assert calls({**metadata, "more": list(metadata.values())}) > 0


def test_self_crag_scores_nothing_twice() -> None:
    llm, evaluator, web = ScriptedReflectionLLM(write=write), WordEvaluator(), PagesWebSearch()
    vague = [document("Vague")]
    graph = create_self_crag(llm, lambda query: vague, evaluator, web, cache=InMemoryCache())
    first = uncosted(graph.invoke(QUESTION))
    before = (len(llm.calls), len(evaluator.calls))
    assert before == (2, 3)  # documents, their strips, and those of the web
    assert uncosted(graph.invoke(QUESTION)) == first
    assert (len(llm.calls), len(evaluator.calls)) == before
    assert len(web.queries) == 2  # the world is asked each time


def test_a_search_is_approved_each_time() -> None:
    graph = create_crag(
        CountingChatModel(),
        lambda query: [],
        WordEvaluator(),
        PagesWebSearch(),
        cache=InMemoryCache(),
        checkpointer=InMemorySaver(),
    )
    context: Any = {"approve_search": True}
    for thread in "12":
        config: Any = {"configurable": {"thread_id": thread}}
        assert "__interrupt__" in graph.invoke(QUESTION, config, context=context)


def test_a_failure_is_not_kept() -> None:
    class Failing(WordEvaluator):
        def score(self, question: str, passages: Any) -> list[float]:
            if not self.calls:
                self.calls.append([])
                raise RuntimeError("once")
            return super().score(question, passages)

    graph = create_crag(
        CountingChatModel(), retriever, Failing(), PagesWebSearch(), cache=InMemoryCache()
    )
    with pytest.raises(EvaluatorFailed, match="once"):
        graph.invoke(QUESTION)
    assert graph.invoke(QUESTION)["action"] == "correct"


@pytest.mark.parametrize("kind", ["instruct_rag", "crag"])
def test_the_same_question_twice_in_a_thread_has_two_replies(kind: str) -> None:
    llm = CountingChatModel(responses=["George Eliot."])
    kept: dict[str, Any] = {"cache": InMemoryCache(), "checkpointer": InMemorySaver()}
    graph: Any
    if kind == "crag":
        graph = create_crag(llm, retriever, WordEvaluator(), PagesWebSearch(), **kept)
    else:
        graph = create_instruct_rag(llm, retriever, **kept)
    config: Any = {"configurable": {"thread_id": "1"}}
    for _ in range(2):
        result = graph.invoke({"messages": [HumanMessage("Who?")]}, config)
    assert [m.type for m in result["messages"]] == ["human", "ai", "human", "ai"]
    assert len({m.id for m in result["messages"]}) == 4
    assert len(llm.asked) == 1
    other: Any = {"configurable": {"thread_id": "2"}}
    assert not graph.invoke({"question": "Who?"}, other).get("messages")  # nor is one made up


def test_models_are_told_apart() -> None:
    cache: BaseCache[Any] = InMemoryCache()
    answers = [
        create_instruct_rag(CountingChatModel(responses=[text]), retriever, cache=cache).invoke(
            QUESTION
        )["answer"]
        for text in ("Eliot.", "Austen.")
    ]
    assert answers == ["Eliot", "Austen"]
    bound = CountingChatModel(responses=["Eliot."])
    for stop in ("a", "b", "a"):
        create_instruct_rag(bound.bind(stop=[stop]), retriever, cache=cache).invoke(QUESTION)
    assert len(bound.asked) == 2


EVALUATORS: dict[str, Callable[[], RetrievalEvaluator]] = {
    "a user's own": WordEvaluator,
    "T5": make_t5,
    "chat model": lambda: ChatEvaluator(CountingChatModel(responses=["yes"])),
    "cross-encoder": lambda: T5Evaluator.from_model(bert(), bert_tokenizer()),
    "reader as an evaluator": lambda: ReaderEvaluator(Reader.load()),
}


@pytest.mark.parametrize("made", EVALUATORS.values(), ids=EVALUATORS)
@pytest.mark.parametrize("is_async", [False, True])
def test_every_evaluator_is_known_to_graphs_that_are_made_later(
    made: Callable[[], RetrievalEvaluator], is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator, cache = made(), InMemoryCache()
    asked = []
    sync, asynchronous = evaluator.score, evaluator.ascore

    def score(*given: Any) -> list[float]:
        asked.append(given)
        return sync(*given)

    async def ascore(*given: Any) -> list[float]:
        asked.append(given)
        return await asynchronous(*given)

    monkeypatch.setattr(evaluator, "score", score)
    monkeypatch.setattr(evaluator, "ascore", ascore)
    counts, results = [], []
    for _ in range(4):
        graph = create_crag(
            CountingChatModel(), retriever, evaluator, PagesWebSearch(), cache=cache
        )
        result = asyncio.run(graph.ainvoke(QUESTION)) if is_async else graph.invoke(QUESTION)
        results.append(uncosted(result))
        counts.append(len(asked))
    assert counts[0] > 0
    assert counts == counts[:1] * 4
    assert results == results[:1] * 4


def test_evaluators_are_told_apart() -> None:
    """By their weights, though both have the same default name."""
    cache: BaseCache[Any] = InMemoryCache()

    def scores(change: float, **options: Any) -> list[float]:
        model = t5()
        with torch.no_grad():
            model.classification_head.out_proj.weight += change
        evaluator = T5Evaluator.from_model(model, t5_tokenizer(), **options)
        graph = create_crag(
            CountingChatModel(), retriever, evaluator, PagesWebSearch(), cache=cache
        )
        return [grade["score"] for grade in graph.invoke(QUESTION)["grades"]]

    assert scores(0.0) == scores(0.0) != scores(0.1)


def test_thresholds_that_are_changed_decide_anew() -> None:
    evaluator = WordEvaluator()
    graph = create_crag(
        CountingChatModel(), retriever, evaluator, PagesWebSearch(), cache=InMemoryCache()
    )
    actions = []
    for upper in (0.5, 0.95, 0.5):
        evaluator.thresholds = Thresholds(upper=upper, lower=-0.5)
        actions.append(graph.invoke(QUESTION)["action"])
    assert actions == ["correct", "ambiguous", "correct"]


def test_a_model_that_a_run_configures_is_asked_for_each_configuration() -> None:
    configurable = CountingChatModel().configurable_fields(responses=ConfigurableField(id="says"))
    graph = create_instruct_rag(configurable, retriever, cache=InMemoryCache())
    answers = [
        graph.invoke(QUESTION, {"configurable": {"says": [text], "thread_id": thread}})["answer"]
        for text, thread in (("Eliot.", "1"), ("Austen.", "1"), ("Eliot.", "2"))
    ]
    assert answers == ["Eliot", "Austen", "Eliot"]


@pytest.mark.parametrize("store", [lambda p: InMemoryCache(), lambda p: SqliteCache(path=str(p))])
def test_a_hit_is_announced_and_the_cache_can_be_cleared(
    store: Callable[[Path], BaseCache[Any]], tmp_path: Path
) -> None:
    llm = CountingChatModel()
    graph = create_instruct_rag(llm, retriever, cache=store(tmp_path / "cache.sqlite"))

    def events() -> list[str]:
        return [part["event"] for part in graph.stream(QUESTION, stream_mode="custom")]

    assert events() == ["retrieved", "rationale_written", "answered"]
    assert events() == ["retrieved", "cached", "answered"]
    graph.clear_cache()
    assert events() == ["retrieved", "rationale_written", "answered"]
    assert len(llm.asked) == 2


def test_another_model_object_of_the_same_name_finds_what_was_kept(tmp_path: Path) -> None:
    asked = []
    for _ in range(2):
        llm = CountingChatModel()
        cache: BaseCache[Any] = SqliteCache(path=str(tmp_path / "cache.sqlite"))
        create_instruct_rag(llm, retriever, cache=cache).invoke(QUESTION)
        asked.append(len(llm.asked))
    assert asked == [1, 0]


@pytest.mark.parametrize("form", ["sync", "async"])
def test_what_a_limit_cut_short_is_not_kept(form: str) -> None:
    graph: Any = create_crag(
        echo(),
        lambda query: [document("Emma", "Gold is here.")],
        WordEvaluator(),
        PagesWebSearch(),
        cache=InMemoryCache(),
    )

    def ask() -> Any:
        asked: Any = {"question": "Who?"}, None
        if form == "sync":
            return graph.invoke(*asked, context={"max_model_calls": 2})
        return asyncio.run(graph.ainvoke(*asked, context={"max_model_calls": 2}))

    first, second = ask(), ask()
    assert first["stopped"] == "max_model_calls"
    assert [strip["score"] for strip in first["strips"]] == [None]
    # Grading costs the second run nothing, so that a call is left for the strips.
    assert second["stopped"] is None
    assert [strip["score"] for strip in second["strips"]] == [0.9]
