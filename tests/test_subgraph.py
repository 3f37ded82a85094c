"""The graphs inside somebody else's: shared messages, other contexts, other state."""

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic import BaseModel

from selfcorrect_rag import CRAGSettings, SelfCRAGSettings, SelfRAGSettings
from selfcorrect_rag.errors import BadSettings
from selfcorrect_rag.settings import InstructRAGSettings
from tests.agents.scripted import GRAPHS, crag, instruct_rag, self_crag, self_rag

THREAD: Any = {"configurable": {"thread_id": "1"}}


class PydanticContext(BaseModel):
    user: str = "someone"
    passages: int = 99


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


def say(text: str) -> Any:
    return {"messages": [HumanMessage(text)]}


@pytest.mark.parametrize(
    ("schema", "context"),
    [(None, None), (PydanticContext, PydanticContext()), (dict, {"user": "someone"})],
)
@pytest.mark.parametrize("make", GRAPHS)
async def test_messages_are_shared_and_nothing_is_doubled(
    make: Callable[..., Any], schema: Any, context: Any
) -> None:
    outer = parent(make(), schema, InMemorySaver())
    first = outer.invoke(say("Who?"), THREAD, context=context)
    assert [type(m) for m in first["messages"]] == [HumanMessage, AIMessage]
    assert first["answer"]
    assert first["visited"] == ["greet", first["answer"]]
    second = await outer.ainvoke(say("And when?"), THREAD, context=context)
    assert [type(m) for m in second["messages"]] == [HumanMessage, AIMessage] * 2
    assert len({m.id for m in second["messages"]}) == 4
    assert second["visited"] == ["greet", first["answer"], "greet", second["answer"]]


def test_a_parents_context_object_says_nothing_a_dict_may() -> None:
    noise = crag("Noise.")
    quiet = parent(noise, PydanticContext).invoke(say("Who?"), context=PydanticContext())
    given = {"user": "someone", "lower": -1.0, "strip_threshold": -1.0}
    dictated = parent(noise, dict).invoke(say("Who?"), context=given)
    assert "Noise." not in quiet["answer"]
    assert "Noise." in dictated["answer"], "a setting in the parent's dict reaches the graph"


@pytest.mark.parametrize(
    ("make", "theirs"),
    [
        (self_rag, CRAGSettings),
        (crag, SelfRAGSettings),
        (self_crag, InstructRAGSettings),
        (instruct_rag, SelfCRAGSettings),
    ],
)
async def test_another_graphs_settings_are_no_parents_own(
    make: Callable[..., Any], theirs: Any
) -> None:
    outer = parent(make(), theirs)
    for context in (theirs(), {"passages": 3}):
        with pytest.raises(BadSettings, match=f"{theirs.__name__} is for {theirs.graph}"):
            outer.invoke(say("Who?"), context=context)
        with pytest.raises(BadSettings, match=f"{theirs.__name__} is for {theirs.graph}"):
            await outer.ainvoke(say("Who?"), context=context)
