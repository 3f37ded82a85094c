"""The reply of a run that began with messages: one message, perhaps streamed before it is whole."""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langgraph.graph.message import push_message

from selfcorrect_rag.nodes.base import Update


def reply(state: Mapping[str, Any], text: str, id: str | None = None) -> Update:
    """The reply as an update; nothing where no human message waits for one.

    Args:
        state: the node's.
        text: all of it.
        id: that of the message whose tokens were streamed; by default that of :func:`say`. A
            message is not streamed once more under an id that was.
    """
    own = _id(state)
    return {} if own is None else {"messages": [AIMessage(text, id=id or own)]}


def say(state: Mapping[str, Any], text: str) -> None:
    """Stream a part of the reply, as chat models stream theirs; nothing where none is awaited."""
    own = _id(state)
    if own is not None and text:
        push_message(AIMessageChunk(content=text, id=own), state_key=None)


def _id(state: Mapping[str, Any]) -> str | None:
    messages = state.get("messages") or []
    if not messages or not isinstance(messages[-1], HumanMessage):
        return None
    return f"reply-to-{messages[-1].id}"
