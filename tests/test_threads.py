"""Whatever a thread went through, a turn answers what came in with it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.types import Overwrite

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.errors import BadInput, ModelFailed, NoQuestion
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.scripted import (
    FULL,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    document,
    passage_of,
    segment,
)

THREAD: Any = {"configurable": {"thread_id": "1"}}
BROKEN: list[str] = []
"""The questions that the model fails for."""


def retrieve(query: str) -> Any:
    return [document("Gold", f"Gold on {query}")]


def check(prompt: str) -> None:
    if any(question in prompt for question in BROKEN):
        raise ConnectionError("the model is down")


def reflecting() -> ScriptedReflectionLLM:
    def write(prompt: str) -> Any:
        check(prompt)
        return segment(f"From {passage_of(prompt)}.", RELEVANT, FULL, USEFUL)

    return ScriptedReflectionLLM(write=write)


def chatting() -> Any:
    def write(messages: Any) -> str:
        check(messages[-1].content)
        return "Document [1] says so. The answer is gold."

    return RunnableLambda(write)


GRAPHS: dict[str, Callable[..., Any]] = {
    "self_rag": lambda **o: create_self_rag(reflecting(), retrieve, **o),
    "crag": lambda **o: create_crag(chatting(), retrieve, WordEvaluator(), PagesWebSearch(), **o),
    "self_crag": lambda **o: create_self_crag(
        reflecting(), retrieve, WordEvaluator(), PagesWebSearch(), **o
    ),
    "instruct_rag": lambda **o: create_instruct_rag(chatting(), retrieve, **o),
}
EVERY = pytest.mark.parametrize("name", GRAPHS)
WAYS = pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])


def made(name: str, **options: Any) -> Any:
    BROKEN.clear()
    return GRAPHS[name](**options)


async def run(graph: Any, asynchronous: bool, *args: Any, **options: Any) -> Any:
    return await graph.ainvoke(*args, **options) if asynchronous else graph.invoke(*args, **options)


def inputs(question: str, by: str, held: list[AnyMessage]) -> Any:
    """A way to ask; some clients send the whole thread each time, whose messages have ids."""
    message = HumanMessage(question)
    match by:
        case "question":
            return {"question": question}
        case "message":
            return {"messages": [message]}
        case "tuple":
            return {"messages": [("human", question)]}
        case "object":
            return {"messages": {"role": "user", "content": question}}
        case "history":
            return {"messages": [*held, message]}
        case "blank":
            return {"question": " ", "messages": [message]}
        case "both":
            return {"question": f" {question}\n", "messages": [message]}
        case "beside":
            return {"question": question, "messages": [AIMessage("By the way.")]}
        case "replacing":
            return {"messages": Overwrite([message])}
        case _:
            return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), message]}


BY_QUESTION = ["question", "beside"]
BYS = [
    *BY_QUESTION, "message", "tuple", "object", "history", "blank", "both", "replacing", "removing"
]  # fmt: skip
FATES = ["answered", "failed", "paused", "failed and gone on with", "paused and gone on with"]
EMPTY: list[tuple[Any, type[Exception]]] = [
    ({}, NoQuestion),
    ({"question": ""}, NoQuestion),
    ({"messages": []}, NoQuestion),
    ({"messages": [AIMessage("Hello.")]}, NoQuestion),
    ({"qestion": "Who?"}, BadInput),
    ({"question": 3}, BadInput),
]


@EVERY
@settings(max_examples=30, deadline=None)
@given(turns=st.lists(st.tuples(st.sampled_from(BYS), st.sampled_from(FATES)), max_size=5))
def test_a_turn_answers_its_own_question(name: str, turns: list[tuple[str, str]]) -> None:
    saver = InMemorySaver()
    graph = made(name, checkpointer=saver)
    pausing = made(name, checkpointer=saver, interrupt_before=["retrieve"])
    for number, (by, fate) in enumerate([*turns, ("message", "answered")]):
        question = f"Question {number}?"
        held = graph.get_state(THREAD).values.get("messages") or []
        asked = inputs(question, by, held)
        if fate.startswith("failed"):
            BROKEN.append(question)
            with pytest.raises(ModelFailed):
                graph.invoke(asked, THREAD)
            BROKEN.clear()
        elif fate.startswith("paused"):
            pausing.invoke(asked, THREAD)
            assert graph.get_state(THREAD).next == ("retrieve",)
        if fate == "answered":
            result = graph.invoke(asked, THREAD)
        elif fate.endswith("gone on with"):
            result = graph.invoke(None, THREAD)
        else:
            continue
        assert (result["original_question"], result["question"]) == (question, question)
        said = [m.content for m in result.get("messages", [])]
        if by not in BY_QUESTION:
            assert said[-2] == question
            assert isinstance(result["messages"][-1], AIMessage)
        else:
            assert question not in said
            assert len(said) == len(held) + (by == "beside")
        for empty, error in EMPTY:
            with pytest.raises(error):
                graph.invoke(empty, THREAD)
        kept = graph.get_state(THREAD).values
        assert [m.content for m in kept.get("messages") or []] == said
        assert kept["answer"] == result["answer"]


@EVERY
@WAYS
async def test_after_a_failed_turn(name: str, asynchronous: bool) -> None:
    graph = made(name, checkpointer=InMemorySaver())
    for second in ({"question": "Q2?"}, {"messages": [HumanMessage("Q2?")]}):
        for first in ({"messages": [HumanMessage("Q1?")]}, {"question": "Q1?"}):
            BROKEN.append("Q1?")
            with pytest.raises(ModelFailed):
                await run(graph, asynchronous, first, THREAD)
            with pytest.raises(NoQuestion, match="nothing is asked: give"):
                await run(graph, asynchronous, {}, THREAD)
            BROKEN.clear()
            result = await run(graph, asynchronous, second, THREAD)
            assert result["original_question"] == "Q2?"
            assert isinstance(result["messages"][-1], HumanMessage) == ("question" in second)


@EVERY
@WAYS
@pytest.mark.parametrize(
    ("bad", "error", "said"),
    [
        ({}, NoQuestion, "nothing is asked"),
        ({"documents": []}, NoQuestion, "nothing is asked"),
        ({"question": None}, NoQuestion, "nothing is asked"),
        ({"question": " \n\t"}, NoQuestion, "the question is empty"),
        ({"messages": []}, NoQuestion, "nothing is asked"),
        ({"messages": [("human", "  ")]}, NoQuestion, "the question is empty"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            NoQuestion,
            "the question is empty",
        ),
        (
            {"messages": [("human", "Who?"), ("ai", "She.")]},
            NoQuestion,
            "the messages end with no human message",
        ),
        ({"messages": [("system", "Be kind.")]}, NoQuestion, "end with no human message"),
        ({"question": 3}, BadInput, "question is no text but int"),
        ({"question": ["Who?"]}, BadInput, "question is no text but list"),
        ({"question": 3, "messages": [("human", "Who?")]}, BadInput, "question is no text"),
        ({"messages": 3}, BadInput, "messages holds what is no message"),
        ({"messages": [{"text": "Who?"}]}, BadInput, "messages holds what is no message"),
        (
            {"question": "Who?", "messages": [("human", "When?")]},
            BadInput,
            "question and the last message ask different things: give one",
        ),
        (
            {"qestion": "Who?"},
            BadInput,
            "the input has no 'qestion': it takes question, messages, documents",
        ),
        ({"question": "Who?", "answer": "She."}, BadInput, "the input has no 'answer'"),
    ],
    ids=str,
)
async def test_an_input_that_asks_nothing_is_refused_and_kept_out_of_the_thread(
    name: str, asynchronous: bool, bad: Any, error: type[Exception], said: str
) -> None:
    graph = made(name, checkpointer=InMemorySaver())
    with pytest.raises(error, match=said) as raised:
        await run(graph, asynchronous, bad, THREAD)
    assert "give" in str(raised.value) or "it takes" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not graph.get_state(THREAD).values.get("messages")
    assert "question" not in graph.get_state(THREAD).values


REFUSED: list[Any] = [
    {},
    3,
    "Who?",
    {"question": " "},
    {"qestion": "Who?"},
    {"messages": ("ai", "Hello")},
    {"messages": [HumanMessage("Who?", id="1"), RemoveMessage(id="1")]},
    {"messages": [HumanMessage("Who?"), RemoveMessage(REMOVE_ALL_MESSAGES)]},
]


@EVERY
@WAYS
@pytest.mark.parametrize("left", ["paused", "failed"])
async def test_what_waits_in_a_thread_goes_on_after_a_refused_input(
    name: str, asynchronous: bool, left: str
) -> None:
    pause = {"interrupt_before": ["retrieve"]} if left == "paused" else {}
    graph = made(name, checkpointer=InMemorySaver(), **pause)
    if left == "failed":
        BROKEN.append("Who?")
        with pytest.raises(Exception, match="the model is down"):
            await run(graph, asynchronous, {"question": "Who?"}, THREAD)
        BROKEN.clear()
    else:
        await run(graph, asynchronous, {"question": "Who?"}, THREAD)
    before = graph.get_state(THREAD)
    for bad in REFUSED:
        with pytest.raises((BadInput, NoQuestion)):
            await run(graph, asynchronous, bad, THREAD)
    assert graph.get_state(THREAD) == before
    result = await run(graph, asynchronous, None, THREAD)
    assert (result["question"], bool(result["answer"])) == ("Who?", True)


@EVERY
@WAYS
async def test_messages_that_replace_others_ask(name: str, asynchronous: bool) -> None:
    kept = HumanMessage("Who?", id="2")
    earlier = [HumanMessage("When?", id="1"), RemoveMessage(id="1"), kept]
    for messages in (earlier, [HumanMessage("When?"), RemoveMessage(REMOVE_ALL_MESSAGES), kept]):
        graph = made(name, checkpointer=InMemorySaver())
        result = await run(graph, asynchronous, {"messages": messages}, THREAD)
        assert result["question"] == "Who?"


@EVERY
@WAYS
async def test_documents_may_be_a_generator_in_a_thread(name: str, asynchronous: bool) -> None:
    graph = made(name, checkpointer=InMemorySaver())
    documents = (document(title, f"Gold on {title}.") for title in "AB")
    result = await run(graph, asynchronous, {"question": "Who?", "documents": documents}, THREAD)
    assert [d.metadata["title"] for d in result["passages"]] == ["A", "B"]


class Down(WordEvaluator):
    """Fails for pages, while documents are refined beside them."""

    is_down = True

    def score(self, question: str, passages: Any) -> list[float]:
        if self.is_down and any("web" in passage for passage in passages):
            raise ConnectionError("the evaluator is down")
        return super().score(question, passages)


@WAYS
@pytest.mark.parametrize("left", ["failed", "paused"])
async def test_a_turn_takes_no_step_that_is_owed_to_an_earlier_one(
    asynchronous: bool, left: str
) -> None:
    """What joins the branches of Self-CRAG is still owed where one of them did not end."""
    evaluator, vague = Down(), [document("Vague", "Vague.")]
    pause: Any = {"interrupt_before": ["select_web_strips"]} if left == "paused" else {}

    def graph(**options: Any) -> Any:
        web = PagesWebSearch()
        return create_self_crag(reflecting(), lambda _: vague, evaluator, web, **options)

    kept = graph(checkpointer=InMemorySaver(), **pause)
    if left == "failed":
        with pytest.raises(Exception, match="the evaluator is down"):
            await run(kept, asynchronous, {"question": "When?"}, THREAD)
    else:
        await run(kept, asynchronous, {"question": "When?"}, THREAD)
    assert kept.get_state(THREAD).next == ("select_web_strips",)
    evaluator.is_down = False
    never: Any = {"mode": "never"}
    later = await run(kept, asynchronous, {"question": "Who?"}, THREAD, context=never)
    fresh = await run(graph(), asynchronous, {"question": "Who?"}, context=never)
    assert later["usage"] == fresh["usage"]
    assert (later["answer"], later["notes"]) == (fresh["answer"], fresh["notes"])


@EVERY
def test_a_message_of_the_thread_is_asked_again(name: str) -> None:
    rewriter = RunnableLambda(lambda messages: "Rewritten?")
    graph = made(name, checkpointer=InMemorySaver(), follow_up=rewriter)
    asked = HumanMessage("Who?", id="1")
    first = graph.invoke({"messages": [asked]}, THREAD)
    graph.invoke({"messages": [HumanMessage("When?")]}, THREAD)
    again = graph.invoke({"messages": [asked]}, THREAD)
    assert again["original_question"] == again["question"] == "Who?", "nothing was said before it"
    assert [m.content for m in again["messages"]][:2] == [m.content for m in first["messages"]]
    assert len(again["messages"]) == len({m.id for m in again["messages"]}) == 5


@EVERY
def test_a_thread_goes_on_from_an_older_step_and_from_an_edited_one(name: str) -> None:
    graph = made(name, checkpointer=InMemorySaver())
    graph.invoke({"question": "Q1?"}, THREAD)
    before = next(s for s in graph.get_state_history(THREAD) if s.next == ("read_question",))
    graph.invoke({"messages": [HumanMessage("Q2?")]}, THREAD)
    assert graph.invoke(None, before.config)["original_question"] == "Q1?", "the step's own turn"
    other = {"question": "Q3?"}
    assert graph.invoke(other, before.config)["original_question"] == "Q3?", "a turn from there"
    edited = graph.update_state(before.config, {"question": "Q4?"}, as_node="__start__")
    assert graph.invoke(None, edited)["original_question"] == "Q4?", "the input itself was edited"
    settled = next(s for s in graph.get_state_history(THREAD) if "retrieve" in s.next)
    edited = graph.update_state(settled.config, {"question": "Q5?"})
    assert graph.invoke(None, edited)["question"] == "Q5?", "what was read was edited"


class Parent(MessagesState):
    """A parent that shares the question, which its state keeps after a turn."""

    question: str
    original_question: str
    visited: list[str]


@EVERY
@WAYS
async def test_in_a_parent_a_message_asks_whatever_its_state_still_holds(
    name: str, asynchronous: bool
) -> None:
    builder = StateGraph(Parent)
    builder.add_node("inside", made(name))
    builder.add_edge(START, "inside")
    graph: Any = builder.compile(checkpointer=InMemorySaver())
    for question in ("Q1?", "Q2?"):
        given = {"messages": [HumanMessage(question)], "visited": [question]}
        result = await run(graph, asynchronous, given, THREAD)
        assert result["original_question"] == result["question"] == question
    BROKEN.append("Q3?")
    with pytest.raises(ModelFailed):
        await run(graph, asynchronous, {"messages": [HumanMessage("Q3?")]}, THREAD)
    BROKEN.clear()
    assert (await run(graph, asynchronous, None, THREAD))["original_question"] == "Q3?"


@EVERY
def test_a_follow_up_reads_what_was_said_before_its_own_turn(name: str) -> None:
    read: list[str] = []

    def rewrite(messages: Any) -> str:
        read.append(messages[-1].content)
        return "Q2, alone?"

    graph = made(name, checkpointer=InMemorySaver(), follow_up=RunnableLambda(rewrite))
    BROKEN.append("Q1?")
    with pytest.raises(ModelFailed):
        graph.invoke({"messages": [HumanMessage("Q1?")]}, THREAD)
    BROKEN.clear()
    for asked in ({"question": "Q2?"}, {"messages": [HumanMessage("Q2?")]}):
        result = graph.invoke(asked, THREAD)
        assert (result["original_question"], result["question"]) == ("Q2?", "Q2, alone?")
        (told,) = read
        assert "user: Q1?" in told
        assert told.count("Q2?") == 1
        read.clear()


@EVERY
def test_a_graph_that_is_compiled_anew_reads_its_turns(name: str) -> None:
    compiled = made(name).builder.compile(checkpointer=InMemorySaver())
    assert compiled.invoke({"question": "Q1?"}, THREAD)["original_question"] == "Q1?"
    with pytest.raises(NoQuestion):
        compiled.invoke({}, THREAD)
