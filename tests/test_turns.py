"""Turns of a thread: nothing of an earlier question is left in any key of any graph's state."""

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.search import WebSearch
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.scripted import (
    FULL,
    NONE,
    RELEVANT,
    USEFUL,
    ScriptedReflectionLLM,
    document,
    passage_of,
    segment,
    timeless,
)

BUSY, OTHER, QUIET = "Busy question?", "Other question?", "Quiet question?"


def retrieve(query: str) -> list[Any]:
    """Much for the busy question, something else for the other, what is right for the quiet."""
    if BUSY in query:
        return [document(f"Busy {word}", f"{word} busy text.") for word in ("Gold", "Vague")]
    if OTHER in query:
        return [document("Other Noise", "Noise of another kind.")]
    return [document("Quiet Gold", "Gold.")]


class BusyWeb(WebSearch):
    name = "busy web"

    def search(self, query: str, k: int) -> list[Any]:
        if "Other" in query:
            return PagesWebSearch().search(query, k)
        raise ValueError("busy failure")

    async def asearch(self, query: str, k: int) -> list[Any]:
        return self.search(query, k)


def reflecting() -> ScriptedReflectionLLM:
    def write(prompt: str) -> Any:
        if "<paragraph>" not in prompt:
            return segment("Busy unread.", USEFUL)
        if "Busy" in prompt and prompt.count("<paragraph>") == 1:
            return segment(
                f"Busy {passage_of(prompt)}.", RELEVANT, FULL, next={"[Retrieval]": 0.9},
                shortened=3,
            )  # fmt: skip
        return segment(f"On {passage_of(prompt)}.", RELEVANT, NONE, USEFUL)

    return ScriptedReflectionLLM(write=write)


def rationale(messages: Any) -> str:
    asked = str(messages[-1].content)
    return "Document [1] says busy. The answer is busy." if BUSY in asked else "It is quiet."


Make = Callable[[], Any]
GRAPHS: dict[str, Make] = {
    "self_rag": lambda: create_self_rag(reflecting(), retrieve, checkpointer=InMemorySaver()),
    "crag": lambda: create_crag(
        RunnableLambda(lambda messages: messages[-1].content),
        retrieve,
        WordEvaluator(),
        BusyWeb(),
        checkpointer=InMemorySaver(),
        follow_up=RunnableLambda(lambda messages: f"{messages[-1].content} busy".split(": ")[-1]),
    ),
    "self_crag": lambda: create_self_crag(
        reflecting(), retrieve, WordEvaluator(), BusyWeb(), checkpointer=InMemorySaver()
    ),
    "instruct_rag": lambda: create_instruct_rag(
        RunnableLambda(rationale),
        retrieve,
        [{"question": "Busy example?", "rationale": "Because."}],
        checkpointer=InMemorySaver(),
    ),
}
BUSY_CONTEXTS: dict[str, Any] = {
    "self_rag": {"options": ["Busy Gold.", "Busy Vague."], "mode": "always"},
    "crag": {"upper": 1.0, "instruction": "Be busy."},
    "self_crag": {"upper": 1.0, "hard_constraints": ["[Fully supported]"]},
    "instruct_rag": {"mode": "icl"},
}
QUIET_CONTEXTS: dict[str, Any] = {
    "self_rag": {"mode": "never"},
    "crag": {},
    "self_crag": {"mode": "never"},
    "instruct_rag": {"mode": "no_retrieval"},
}


def config(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def plain(value: Any) -> Any:
    """Without the ids of messages, which are random."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, AIMessage | HumanMessage):
        return type(value).__name__, value.content
    return value


TALK = {"messages", "human_message_id", "reply_id"}
"""Keys that hold messages, or the ids of some."""


@pytest.mark.parametrize("by", ["messages", "question"])
@pytest.mark.parametrize("name", GRAPHS)
def test_every_key_after_three_turns_is_as_after_the_last_alone(name: str, by: str) -> None:
    graph = GRAPHS[name]()

    def turn(thread: str, question: str, context: Any, **more: Any) -> dict[str, Any]:
        asked = {"messages": [HumanMessage(question)]} if by == "messages" else {}
        given: Any = {**asked, **({} if asked else {"question": question}), **more}
        graph.invoke(given, config(thread), context=context)
        return dict(graph.get_state(config(thread)).values)

    fixed = [document("Busy fixed", "Gold busy fixed.")]
    busy = turn("three", BUSY, BUSY_CONTEXTS[name])
    filled = {key for key, value in busy.items() if value}
    turn("three", OTHER, BUSY_CONTEXTS[name], documents=fixed)
    last = turn("three", QUIET, QUIET_CONTEXTS[name])
    alone = turn("alone", QUIET, QUIET_CONTEXTS[name])
    if by == "messages" and name == "crag":  # the one graph here that rewrites follow-ups
        assert (last["original_question"], last["question"]) == (QUIET, f"{QUIET} busy")
        graph.invoke({"question": last["question"]}, config("rewritten"))
        alone = dict(graph.get_state(config("rewritten")).values) | {"original_question": QUIET}
    assert len(filled) > 8, "the first turn leaves something that could stay"
    assert last.keys() | {"messages"} == alone.keys() | {"messages"}
    assert (last["human_message_id"] is None) == (by == "question")
    for key in last.keys() - TALK:
        assert timeless(plain(last[key])) == timeless(plain(alone[key])), key
    if by == "messages":
        assert len(last["messages"]) == 6
