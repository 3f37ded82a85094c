"""The base of the nodes: sync and async alike, costs, faults, retries, cached results."""

import asyncio
import threading
import time
from datetime import date
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.runnables import ConfigurableField
from langgraph.cache.memory import InMemoryCache
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import StateGraph
from langgraph.types import RetryPolicy

from selfcorrect_rag import create_crag, create_self_rag
from selfcorrect_rag.errors import ModelFailed, NoQuestion, RetrievalFailed
from selfcorrect_rag.models import ChatEvaluator, PromptedReflectionLLM
from selfcorrect_rag.models.chat_model import LONGEST_ANSWER
from selfcorrect_rag.models.reflection_llm import LONG
from selfcorrect_rag.nodes.decide_retrieval import decide_retrieval
from selfcorrect_rag.nodes.node import Node, Run, add_node, cache_policy
from selfcorrect_rag.nodes.node import ask as ask_model
from selfcorrect_rag.nodes.retrieve import retrieve
from selfcorrect_rag.settings import SelfRAGSettings, Settings
from selfcorrect_rag.state import FREE, SelfRAGState
from selfcorrect_rag.thresholds import Thresholds
from tests.crag_runs import WordEvaluator
from tests.nodes.parts import beam, candidate
from tests.providers import Provider, chat
from tests.scripted import FULL, RELEVANT, THREAD, USEFUL, ScriptedLLM, document, segment
from tests.test_faults import FORMS, ask

QUESTION: Any = {"question": "Who?"}


@FORMS
@pytest.mark.parametrize(("tokens", "counted"), [(7, 14), (None, None)])
async def test_the_calls_of_a_step_are_counted(form: str, tokens: Any, counted: Any) -> None:
    usage = tokens and {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    answers = iter(AIMessage(text, usage_metadata=usage) for text in ("First.", "Second."))
    model = Provider(answer=lambda prompt: next(answers))

    async def step(state: Any, run: Run[Any]) -> Any:
        said = [await ask_model(run, model, state["question"], max_tokens=9) for _ in range(2)]
        return {"notes": said}

    update = await ask(Node("twice", step, Settings()), form, QUESTION)
    assert update["notes"] == ["First.", "Second."]
    (run,) = update["route"]
    assert (run["step"], run["model_calls"], run["prompt_tokens"]) == ("twice", 2, counted)
    assert [options["max_tokens"] for _, options in model.calls] == [9, 9]


@FORMS
async def test_a_failed_call_is_a_fault_with_a_cost_and_the_step_may_recover(form: str) -> None:
    # StopIteration would end a coroutine as if it had returned
    broken = Provider(answer=lambda prompt: next(iter([])))

    async def step(state: Any, run: Run[Any]) -> Any:
        return {"notes": [await ask_model(run, broken, "?")]}

    with pytest.raises(ModelFailed, match="Provider"):
        await ask(Node("asks", step, Settings()), form, QUESTION)
    node = Node("asks", step, Settings(), lambda state, run, fault: {"notes": [fault.part]})
    update = await ask(node, form, QUESTION)
    assert update["notes"] == ["model"]
    assert update["route"][0]["failed"] == "model"
    assert update["route"][0]["model_calls"] == 1

    def fail(*given: Any, **options: Any) -> Any:
        raise ModelFailed("down")

    async def batch(state: Any, run: Run[Any]) -> Any:
        return await run.segments(fail, fail, ["?"])

    node = Node("writes", batch, Settings(), lambda state, run, fault: {})
    assert (await ask(node, form, QUESTION))["route"][0]["model_calls"] == 1


def asking(llm: Any) -> Node[Any]:
    async def step(state: Any, run: Run[Any]) -> Any:
        return {"answer": await ask_model(run, llm, "?"), "notes": ["Its own."]}

    return Node("asks", step, Settings())


@FORMS
async def test_what_a_model_writes_is_bounded_and_a_note_says_so(form: str) -> None:
    update = await ask(asking(chat("[1]" * 200_000)), form, QUESTION)
    assert len(update["answer"]) == LONGEST_ANSWER
    cut = "the model's text was cut to its first 100,000 characters"
    assert update["notes"] == ["Its own.", cut]
    fits = await ask(asking(chat("x" * LONGEST_ANSWER)), form, QUESTION)
    assert fits["notes"] == ["Its own."]


@FORMS
async def test_a_node_takes_its_name_from_the_config(form: str) -> None:
    config: Any = {"metadata": {"langgraph_node": "mine"}}
    started = time.perf_counter()
    update = await ask(asking(chat("Yes.")), form, QUESTION, config)
    (step,) = update["route"]
    assert step["step"] == "mine"
    assert 0 <= step["seconds"] <= time.perf_counter() - started


def test_a_step_that_suspends_in_a_sync_run_is_told() -> None:
    async def step(state: Any, run: Run[Any]) -> Any:
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="awaited something that suspends"):
        Node("sleeps", step, Settings()).invoke(QUESTION)


async def test_long_computations_leave_the_event_loop() -> None:
    def step_of(characters: int) -> Any:
        async def step(state: Any, run: Run[Any]) -> Any:
            texts = [document("A page", "x" * characters)]
            thread = lambda what: f"{what} {threading.current_thread().name}"  # noqa: E731
            name = await run.compute(thread, "in", texts=texts)
            return {"notes": [name]}

        return Node("computes", step, Settings())

    here = f"in {threading.current_thread().name}"
    (there,) = (await ask(step_of(LONG + 1), "async", QUESTION))["notes"]
    assert there != here
    assert there.startswith("in ")
    assert (await ask(step_of(LONG), "async", QUESTION))["notes"] == [here]
    assert (await ask(step_of(LONG + 1), "sync", QUESTION))["notes"] == [here]


def test_a_node_alone_names_what_its_state_lacks() -> None:
    node = retrieve(lambda query: [])
    with pytest.raises(NoQuestion, match="retrieve reads 'question'"):
        node.invoke({"passages": []})
    assert node.invoke(QUESTION)["passages"] == []


@pytest.mark.parametrize(
    ("retry_on", "calls"),
    [
        ((ValueError,), 1),
        (RetrievalFailed, 2),
        (lambda error: False, 1),
        (lambda error: isinstance(error, RetrievalFailed), 2),
        (ConnectionError, 2),
    ],
)
def test_a_node_recovers_at_once_from_what_is_not_retried(retry_on: Any, calls: int) -> None:
    tries: list[int] = []

    def step(state: Any, run: Run[Any]) -> Any:
        tries.append(1)
        raise RetrievalFailed("down") from ConnectionError("refused")

    node = Node("tries", step, Settings(), lambda state, run, fault: {"notes": ["recovered"]})
    graph = StateGraph(SelfRAGState)
    policy = RetryPolicy(max_attempts=2, initial_interval=0.0, jitter=False, retry_on=retry_on)
    add_node(graph, node, retry_policy=policy)
    graph.set_entry_point("tries")
    assert graph.compile().invoke({"question": "?"})["notes"] == ["recovered"]
    assert len(tries) == calls


@pytest.mark.parametrize("passages", [[], [document("A")]])
def test_a_person_may_take_away_what_was_retrieved(passages: list[Document]) -> None:
    pausing = {"interrupt_after": ["retrieve"], "checkpointer": InMemorySaver()}
    graph = make(named("red"), None, "A", "B", **pausing)
    graph.invoke(QUESTION, THREAD)
    graph.update_state(THREAD, {"passages": passages})
    assert len(graph.invoke(None, THREAD)["candidates"]) == 1


def test_nodes_work_in_a_graph_of_the_users() -> None:
    graph = StateGraph(SelfRAGState, context_schema=SelfRAGSettings)
    add_node(graph, retrieve(lambda query: [document(t) for t in "ABC"]))
    graph.set_entry_point("retrieve")
    compiled: Any = graph.compile()
    assert len(compiled.invoke(QUESTION)["passages"]) == 3
    assert len(compiled.invoke(QUESTION, context={"passages": 2})["passages"]) == 2
    late = {**QUESTION, "beams": [beam(candidate("One."))]}
    plain = StateGraph(SelfRAGState).add_node("seek", retrieve(lambda query: 1 / 0))
    (note,) = plain.set_entry_point("seek").compile().invoke(late)["notes"]
    assert "ZeroDivisionError" in note


CACHED = ("decide_retrieval", "generate_and_critique")


class Named(ScriptedLLM):
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


@FORMS
async def test_a_hit_asks_nothing_costs_nothing_and_answers_the_same(form: str) -> None:
    llm = named("red")
    graph = make(llm, InMemoryCache(), checkpointer=InMemorySaver()).with_config(THREAD)
    asked = {"messages": [("user", "Who?")]}
    first, second = [await ask(graph, form, asked) for _ in range(2)]
    assert len(llm.calls) == 2
    assert first["usage"]["model_calls"] == 2
    assert second["usage"]["model_calls"] == second["usage"]["generated_tokens"] == 0
    assert [run["step"] for run in second["route"]] == [run["step"] for run in first["route"]]
    assert all(run["cached"] is (run["step"] in CACHED) for run in second["route"])
    for key in ("answer", "citations", "candidates", "score", "notes"):
        assert first[key] == second[key]
    assert [m.type for m in second["messages"]] == ["human", "ai", "human", "ai"]


def test_a_fault_is_not_read_from_the_cache() -> None:
    said: list[Any] = [segment("One.", RELEVANT, FULL, USEFUL, next={"[Retrieval]": 1.0})]
    graph = make(Named(name="red", write=lambda prompt: said["One." in prompt]), InMemoryCache())
    assert graph.invoke({"question": "Who?"})["stopped"] == "model"
    said.append(segment("Two.", RELEVANT, FULL, USEFUL))
    assert graph.invoke({"question": "Who?"})["answer"] == "One. Two."


def test_a_key_holds_the_model_the_settings_and_what_is_read() -> None:
    cache: Any = InMemoryCache()

    def calls(name: str = "red", title: str = "A", question: str = "Who?", **context: Any) -> Any:
        """Return how often each node asks its model."""
        result = make(named(name), cache, title).invoke({"question": question}, context=context)
        assert result["answer"] == f"{name}.", "two models on one cache do not collide"
        steps = {run["step"]: run["model_calls"] for run in result["route"]}
        return [steps[step] for step in CACHED]

    assert [calls(), calls()] == [[1, 1], [0, 0]]
    assert calls(segment_tokens=50) == calls(question="What?") == calls("blue") == [1, 1]
    assert calls(title="B") == [0, 1]


def test_a_key_holds_what_limits_leave_and_the_whole_of_passages() -> None:
    llm = named("red")
    policy = cache_policy(decide_retrieval(llm), llm, ["passages"])
    assert policy

    def key(passage: Document, spent: int = 0, **settings: Any) -> str:
        costs = {**FREE, "model_calls": spent, "prompt_tokens": spent}
        route = [costs] if spent else None
        state = {**QUESTION, "settings": settings, "passages": [passage], "route": route}
        return policy.key_func(state)

    one = Document("Text.", id="1", metadata={"a": 1, "b": 2})
    same = Document("Text.", id="1", metadata={"b": 2, "a": 1})
    assert key(one) == key(same) == key(one, spent=99), "so little of so much"
    others = [
        key(one),
        key(one, spent=1_001),
        key(Document("Other.", id="1", metadata={"a": 1, "b": 2})),
        key(Document("Text.", id="2", metadata={"a": 1, "b": 2})),
        key(Document("Text.", id="1", metadata={"a": 1, "b": 3})),
        *(key(Document("Text.", id="1", metadata={"a": date(n, 1, 1)})) for n in (1, 2)),
        *(key(one, spent, max_tokens=50) for spent in (0, 1, 2)),
        *(key(one, spent, max_model_calls=50) for spent in (0, 1, 2)),
        key(one, max_model_calls=None),
    ]
    assert len(set(others)) == len(others)
    assert key(one, 1, max_model_calls=None) == key(one, 2, max_model_calls=None)


def test_crag_grades_and_refines_again_only_what_changed() -> None:
    evaluator, cache = WordEvaluator(), InMemoryCache()

    def asked(text: str, page: str, **options: Any) -> int:
        """Return how often the evaluator is asked: for documents, their strips, the web's."""
        before = len(evaluator.calls)
        found, pages = [Document(text)], [Document(page)]
        parts = chat("Yes."), lambda _: found, evaluator, lambda _: pages
        create_crag(*parts, cache=cache, **options).invoke(QUESTION)
        return len(evaluator.calls) - before

    assert asked("Vague.", "Gold.") == 3
    assert asked("Vague.", "Gold.") == 0
    assert asked("Vague.", "Gold bars.") == 1
    assert asked("Vague too.", "Gold.") == 2
    evaluator.thresholds = Thresholds(upper=0.6, lower=-0.6)
    assert asked("Vague.", "Gold.") == 3
    kept: list[list[str]] = []
    for _ in range(2):  # a filter that the caller gives is not cached
        asked("Vague.", "Gold.", strip_filter=lambda _, strips: kept.append(strips) or [True])
    assert kept == [["Vague."], ["Gold."]] * 2


def test_configurable_models_have_no_cache_policy() -> None:
    model = chat("Red.").configurable_fields(responses=ConfigurableField(id="responses"))
    llm = PromptedReflectionLLM(model)
    critic = PromptedReflectionLLM(chat("Red."), critic=model)
    for asked in (model, llm, critic, ChatEvaluator(model)):
        assert cache_policy(decide_retrieval(llm), asked, []) is None
