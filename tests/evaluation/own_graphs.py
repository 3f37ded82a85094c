"""Compiled graphs of a user's, as ``module:attribute`` names them."""

import asyncio
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AnyMessage
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

MODEL = FakeListChatModel(responses=["Lind, I think."])


class Chat(TypedDict, total=False):
    """A conversation."""

    messages: list[AnyMessage]


class Asked(TypedDict, total=False):
    """A question, with the caller's documents and an answer."""

    question: str
    documents: list[Document]
    answer: str
    passages: list[Document]


async def _talk(state: Chat) -> Any:
    return {"messages": [*state["messages"], await MODEL.ainvoke(state["messages"])]}


def _read(state: Asked) -> Any:
    documents = state.get("documents") or []
    return {"answer": f"of {len(documents)}", "passages": documents}


async def _dead(state: Asked) -> Any:
    raise ConnectionError(REFUSED)


async def _slow(state: Asked) -> Any:
    await asyncio.sleep(0.05)
    if "fail" in state["question"]:
        raise RuntimeError("it is broken")
    return {"answer": state["question"].upper()}


def _compiled(state: Any, step: Any) -> Any:
    graph = StateGraph(state)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_edge("step", END)
    return graph.compile()


chat = _compiled(Chat, _talk)
"""Takes messages and answers with one."""
slow = _compiled(Asked, _slow)
"""Takes a twentieth of a second, and fails where it is asked to."""
dead = _compiled(Asked, _dead)
"""Has no endpoint."""
REFUSED = "connection refused"
NUMBER = 3


def reads() -> Any:
    """A graph that counts the documents it is given."""
    return _compiled(Asked, _read)


class Nothing(TypedDict, total=False):
    """Neither question nor messages."""

    topic: str


deaf = _compiled(Nothing, lambda state: {})
