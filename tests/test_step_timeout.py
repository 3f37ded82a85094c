"""A limit on the time of a step: what it cuts off, and what it leaves as it is."""

import threading
from contextvars import ContextVar
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt

from selfcorrect_rag import SelfRAGSettings
from selfcorrect_rag.errors import BadSettings, RetrievalFailed
from tests.faults.cases import FORMS
from tests.faults.graphs import PASSAGE, QUESTION, Parts, call, raises

CONFIG: Any = {"configurable": {"thread_id": "1"}}
SOON: Any = {"step_timeout": 0.2}
LONG: Any = {"step_timeout": 30}
both_forms = pytest.mark.parametrize("form", FORMS)


def test_a_step_that_was_given_up_says_nothing_more() -> None:
    """Not even where the run still goes on when its call returns."""
    parts, given_up, returned = Parts(), threading.Event(), threading.Event()

    def late(query: str) -> Any:
        given_up.wait(10)
        returned.set()
        return [PASSAGE]

    def waits(texts: Any) -> Any:
        given_up.set()
        returned.wait(10)
        threading.Event().wait(0.1)  # for what the thread of the first step has left to do
        return [0.0] * len(texts)

    parts.retriever.breaks(late)
    parts.evaluator.breaks(waits)
    events = list(parts.build("crag").stream(QUESTION, CONFIG, stream_mode="custom", context=SOON))
    names = [event["event"] for event in events]
    assert "retrieval_failed" in names
    assert "retrieved" not in names
    assert names[-1] == "answered"


@both_forms
def test_a_pause_passes_through(form: str) -> None:
    parts = Parts()
    parts.retriever.breaks(lambda query: [PASSAGE] if interrupt("May I?") else [])
    graph = parts.build("self_rag", checkpointer=InMemorySaver())
    paused = call(graph, form, QUESTION, CONFIG, context=LONG)
    assert paused["__interrupt__"][0].value == "May I?"
    result = call(graph, form, Command(resume=True), CONFIG, context=LONG)
    assert result["passages"] == [PASSAGE]


@both_forms
def test_a_person_has_all_the_time(form: str) -> None:
    graph = Parts().build("crag", checkpointer=InMemorySaver())
    context = {**SOON, "approve_search": True}
    call(graph, form, QUESTION, CONFIG, context=context)
    threading.Event().wait(0.3)
    result = call(graph, form, Command(resume="yes"), CONFIG, context=context)
    assert len(result["web_results"]) == 1


@both_forms
def test_the_context_of_the_caller_is_seen(form: str) -> None:
    user: ContextVar[str] = ContextVar("user")
    user.set("Dorothea")
    parts, seen = Parts(), []
    parts.retriever.breaks(lambda query: seen.append(user.get()) or [PASSAGE])
    call(parts.build("self_rag"), form, QUESTION, CONFIG, context=LONG)
    assert set(seen) == {"Dorothea"}


@both_forms
def test_a_timeout_of_the_parts_own_is_its_own(form: str) -> None:
    parts = Parts()
    parts.retriever.breaks(raises(TimeoutError("the index is slow")))
    with pytest.raises(RetrievalFailed, match="TimeoutError: the index is slow"):
        call(parts.build("self_rag"), form, QUESTION, CONFIG, context=LONG)


@both_forms
def test_results_are_those_without_a_limit(form: str) -> None:
    for graph in ("self_rag", "crag", "self_crag", "instruct_rag"):
        plain, limited = (
            call(Parts().build(graph), form, QUESTION, CONFIG, context=context)
            for context in (None, LONG)
        )
        assert plain["answer"] == limited["answer"]
        assert plain["costs"].keys() == limited["costs"].keys()


def test_no_time_at_all_is_refused() -> None:
    with pytest.raises(BadSettings, match="step_timeout"):
        SelfRAGSettings(step_timeout=0)
