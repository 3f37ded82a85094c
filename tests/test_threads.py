"""Turns of a thread, pauses, forks, runs that never mix, and the graphs inside another graph."""

import asyncio
import operator
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite
from pydantic import BaseModel

from selfcorrect_rag import CRAGSettings, SelfCRAGSettings, SelfRAGSettings, create_self_rag
from selfcorrect_rag.errors import BadSettings, ModelFailed, NoDocument, NoQuestion
from selfcorrect_rag.settings import InstructRAGSettings
from selfcorrect_rag.state import add_notes
from tests.agents.scripted import GRAPHS, crag, say
from tests.scripted import FULL, RELEVANT, THREAD, ScriptedLLM, document, passage_of, segment


def graph(broken: Collection[str] = (), **options: Any) -> Any:
    """Fails for the ``broken`` questions."""

    def write(prompt: str) -> Any:
        if any(question in prompt for question in broken):
            raise ConnectionError("the model is down")
        return segment(f"From {passage_of(prompt)}.", RELEVANT, FULL, {"[Utility:5]": 1.0})

    llm = ScriptedLLM(write=write)
    return create_self_rag(llm, lambda query: [document(query)], **options)


INPUTS: dict[str, Callable[[str], Any]] = {
    "question": lambda q: {"question": f" {q}\n"},
    "message": lambda q: {"messages": [HumanMessage(q)]},
    "blocks": lambda q: {"messages": [HumanMessage([{"type": "text", "text": q}])]},
    "tuple": lambda q: {"messages": ("user", q)},
    "blank": lambda q: {"question": " ", "messages": [HumanMessage(q)]},
    "both": lambda q: {"question": q, "messages": [HumanMessage(q)]},
    "beside": lambda q: {"question": q, "messages": [AIMessage("By the way.")]},
    "replacing": lambda q: {"messages": Overwrite([HumanMessage(q)])},
    "removing": lambda q: {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), HumanMessage(q)]},
}
BY_QUESTION = ("question", "beside")


TURN = st.tuples(st.sampled_from(sorted(INPUTS)), st.sampled_from(("answered", "failed", "paused")))


@settings(max_examples=40, deadline=None)
@given(st.lists(TURN, min_size=1, max_size=4), st.booleans())
def test_whatever_a_thread_went_through_a_turn_answers_what_came_in_with_it(
    turns: list[tuple[str, str]], asynchronous: bool
) -> None:
    broken: set[str] = set()
    made = graph(broken, checkpointer=InMemorySaver())

    def run(given: Any, **options: Any) -> Any:
        if asynchronous:
            return asyncio.run(made.ainvoke(given, THREAD, **options))
        return made.invoke(given, THREAD, **options)

    for number, (by, fate) in enumerate(turns):
        question = f"Question {number}?"
        asked = INPUTS[by](question)
        if fate == "paused":
            run(asked, interrupt_before=["retrieve"])
            continue
        if fate == "failed":
            broken.add(question)
            with pytest.raises(ModelFailed, match="the model is down"):
                run(asked)
            continue
        result = run(asked)
        assert result["question"] == result["original_question"] == question
        assert result["answer"] == f"From {question}."
        assert [p.id for p in result["passages"]] == [question], "nothing of another turn"
        assert len(result["candidates"]) == 1
        assert result["usage"]["model_calls"] == 2
        assert [run["step"] for run in result["route"]].count("read_question") == 1
        last = result["messages"][-1:]
        replied = any(m.type == "ai" and m.text.startswith(result["answer"]) for m in last)
        assert replied == (by not in BY_QUESTION)


@pytest.mark.parametrize(
    ("given_input", "error", "says"),
    [
        ({"question": ""}, NoQuestion, "messages end with no human"),
        ({"messages": [AIMessage("Hello.")]}, NoQuestion, "messages end with no human"),
        ({"messages": [HumanMessage(" ")]}, NoQuestion, "^the question is empty: give"),
        ({"documents": [document("A")]}, NoQuestion, "messages end with no human"),
        ({"question": 3}, NoQuestion, "question must be text, got int"),
        ({"question": "Who?", "documents": "text"}, NoDocument, "the input gave a str"),
    ],
    ids=str,
)
def test_an_input_without_a_question_is_refused(
    given_input: Any, error: type[Exception], says: str
) -> None:
    made = graph(checkpointer=InMemorySaver())
    made.invoke({"question": "Before?"}, THREAD)
    made.invoke({"messages": [("user", "Before too?")]}, THREAD)
    with pytest.raises(error, match=says):
        made.invoke(given_input, THREAD)
    assert made.invoke({"question": "After?"}, THREAD)["answer"] == "From After?."


def test_without_a_retriever_documents_come_with_the_input() -> None:
    llm = ScriptedLLM(write=lambda _: segment("Red.", RELEVANT, FULL))
    made: Any = create_self_rag(llm)
    result = made.invoke({"question": "Who?", "documents": [document("A")]})
    assert result["cited_answer"] == "Red. [1]"
    with pytest.raises(NoDocument, match="give documents in the input, or a retriever"):
        made.invoke({"question": "Who?"})
    assert made.invoke({"question": "Who?"}, context={"mode": "never"})["answer"] == "Red."


def test_a_paused_turn_is_changed_resumed_and_forked() -> None:
    made = graph(checkpointer=InMemorySaver(), interrupt_before=["generate_and_critique"])
    made.invoke({"question": "Who?"}, THREAD)
    paused = made.get_state(THREAD)
    assert paused.next == ("generate_and_critique",)
    assert made.invoke(None, THREAD)["answer"] == "From Who?."
    edited = {"page_content": "Edited.", "metadata": {"title": "Edited"}}
    fork = made.update_state(paused.config, {"passages": [edited]})
    assert made.invoke(None, fork)["answer"] == "From Edited."
    again = made.invoke(None, paused.config)
    assert (again["answer"], again["usage"]["model_calls"]) == ("From Who?.", 2)


def test_the_settings_of_a_turn_are_fixed_when_it_begins_and_a_fork_may_change_them() -> None:
    pausing: Any = {"interrupt_before": ["generate_and_critique"], "settings": {"depth": 3}}
    made = graph(checkpointer=InMemorySaver(), **pausing)
    made.invoke({"question": "Who?"}, THREAD, context={"weight_isuse": 0.0})
    paused = made.get_state(THREAD)
    assert paused.values["settings"] == {"depth": 3, "weight_isuse": 0.0}
    resumed = made.invoke(None, THREAD, context={"weight_isuse": 2.0})
    assert resumed["score"] == pytest.approx(0.5 + 0.9 + 1.0)
    fork = made.update_state(paused.config, {"settings": {"weight_isuse": 2.0}})
    assert made.invoke(None, fork)["score"] == pytest.approx(0.5 + 0.9 + 1.0 + 2.0)
    made.invoke({"question": "Who?"}, THREAD)
    assert made.get_state(THREAD).values["settings"] == {"depth": 3}, "not the last turn's"


def test_a_turn_says_a_note_once() -> None:
    assert add_notes(["one"], ["two", "one", "two"]) == ["one", "two"]


def test_bad_settings_are_refused_before_anything_runs() -> None:
    with pytest.raises(BadSettings, match="did you mean beam_width"):
        graph().invoke({"question": "Who?"}, context={"beam_with": 3})
    with pytest.raises(BadSettings, match="beam_width: Input should be greater than"):
        graph(settings={"beam_width": 0})


def test_settings_in_configurable_are_refused_not_ignored() -> None:
    made = graph()
    given: Any = {"configurable": {"mode": "never", "theirs": 1}}
    with pytest.raises(BadSettings, match=r'^mode: .*context=\{"mode": '):
        made.invoke({"question": "Who?"}, given)
    # A LangGraph server copies the context there, as JSON.
    assert made.invoke({"question": "Who?"}, given, context={"mode": "never"})["passages"] == []
    copied: Any = {"hard_constraints": ["[Irrelevant]"], "options": ["A", "B"]}
    assert made.invoke({"question": "Who?"}, {"configurable": copied}, context=copied)["answer"]


@pytest.mark.parametrize("threads", [False, True], ids=["tasks", "threads"])
async def test_64_concurrent_runs_never_mix(threads: bool) -> None:
    """Each with its own question, settings, thread and documents, two segments long."""

    def write(prompt: str) -> Any:
        name = passage_of(prompt)
        going: Any = {"next": {"[Retrieval]": 0.9}} if prompt.count("<paragraph>") == 1 else {}
        return segment(f"From {name}.", RELEVANT, FULL, **going)

    llm = ScriptedLLM(write=write)
    made = create_self_rag(llm, lambda query: [document(query[:3])], checkpointer=InMemorySaver())

    def arguments(i: int) -> Any:
        asked = {"messages": [("user", f"q{i:02}")]}
        config = {"configurable": {"thread_id": str(i)}}
        context = {"depth": 1 + i % 2, "weight_isrel": i / 64}
        return {"input": asked, "config": config, "context": context}

    if threads:
        with ThreadPoolExecutor(16) as pool:
            results = list(pool.map(lambda i: made.invoke(**arguments(i)), range(64)))
    else:
        results = await asyncio.gather(*(made.ainvoke(**arguments(i)) for i in range(64)))
    for i, result in enumerate(results):
        assert result["answer"] == " ".join([f"From q{i:02}."] * (1 + i % 2))
        assert [m.type for m in result["messages"]] == ["human", "ai"]
        assert result["usage"]["model_calls"] == 2 + i % 2
        assert result["score"] == pytest.approx(0.5 + i / 64 * 0.9 + 1.0)


class PydanticContext(BaseModel):
    lower: float = -1.0
    strip_threshold: float = -1.0
    upper: float | None = None


class ParentState(MessagesState):
    """A parent that shares ``messages`` and ``answer``, and has a reducer key of its own."""

    answer: str
    visited: Annotated[list[str], operator.add]


def parent(graph: Any, context_schema: Any = None, checkpointer: Any = None) -> Any:
    builder = StateGraph(ParentState, context_schema=context_schema)
    builder.add_node("greet", lambda state: {"visited": ["greet"]})
    builder.add_node("answer_from_documents", graph)
    builder.add_node("part", lambda state: {"visited": [state["answer"]]})
    for edge in pairwise((START, "greet", "answer_from_documents", "part", END)):
        builder.add_edge(*edge)
    return builder.compile(checkpointer=checkpointer)


@pytest.mark.parametrize(
    ("schema", "context"),
    [(None, None), (PydanticContext, PydanticContext()), (dict, {"user": "someone"})],
)
@pytest.mark.parametrize("make", GRAPHS)
async def test_messages_are_shared_and_never_doubled(make: Any, schema: Any, context: Any) -> None:
    outer = parent(make(), schema, InMemorySaver())
    first = outer.invoke(say("Who?"), THREAD, context=context)
    assert [type(m) for m in first["messages"]] == [HumanMessage, AIMessage]
    assert first["answer"]
    assert first["visited"] == ["greet", first["answer"]]
    second = await outer.ainvoke(say("And when?"), THREAD, context=context)
    assert [type(m) for m in second["messages"]] == [HumanMessage, AIMessage] * 2
    assert len({m.id for m in second["messages"]}) == 4
    assert second["visited"] == ["greet", first["answer"], "greet", second["answer"]]


def test_settings_in_a_parents_context_reach_the_graph() -> None:
    noise, given = crag("Noise."), PydanticContext()
    assert "Noise." not in parent(noise, str).invoke(say("Who?"), context="them")["answer"]
    for schema, context in ((dict, given.model_dump(exclude_none=True)), (PydanticContext, given)):
        assert "Noise." in parent(noise, schema).invoke(say("Who?"), context=context)["answer"]


THEIRS = CRAGSettings, SelfRAGSettings, InstructRAGSettings, SelfCRAGSettings


@pytest.mark.parametrize(("make", "theirs"), [*zip(GRAPHS, THEIRS, strict=True)])
async def test_another_graphs_settings_are_refused(make: Any, theirs: Any) -> None:
    outer = parent(make(), theirs)
    for context in (theirs(), {"passages": 3}):
        with pytest.raises(BadSettings, match=f"{theirs.__name__} is for {theirs.graph}"):
            outer.invoke(say("Who?"), context=context)
        with pytest.raises(BadSettings, match=f"{theirs.__name__} is for {theirs.graph}"):
            await outer.ainvoke(say("Who?"), context=context)
