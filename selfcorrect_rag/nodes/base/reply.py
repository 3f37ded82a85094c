"""The answer of a run as a message: always streamed, and added to ``messages`` where one asked."""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import ensure_config
from langgraph.constants import TAG_NOSTREAM
from langgraph.graph.message import push_message

from selfcorrect_rag.nodes.base.node import Update, is_given_up, runtime
from selfcorrect_rag.nodes.base.usage import counter

NO_ANSWER = "No answer: the model wrote nothing."
"""The text in place of an empty answer."""
SILENT = "the model wrote nothing: the answer says so"
"""The note about an empty answer."""


def reply(state: Mapping[str, Any], text: str) -> Update:
    """The update with a node's whole reply.

    It is streamed once: token by token by a chat model, else whole.
    """
    streamed = counter().message_id
    if streamed is None:
        say(state, text)
    return kept(state, text, streamed)


def kept(state: Mapping[str, Any], text: str, id: str | None = None) -> Update:
    """The update with a reply that was streamed; empty where ``question`` asked, not a message.

    Args:
        state: the node's.
        text: the whole reply.
        id: the id that it was streamed under, by default that of :func:`say`; LangGraph does not
            stream an id again.
    """
    if state.get("human_message_id") is None:
        return {}
    return {"messages": [AIMessage(text, id=id or state["reply_id"])]}


def say(state: Mapping[str, Any], text: str) -> None:
    """Stream a part of the reply like a chat model's tokens; not where the graph runs in a tool."""
    if is_given_up() or runtime() is None:
        return
    if text and TAG_NOSTREAM not in (ensure_config().get("tags") or ()):
        push_message(
            AIMessageChunk(content=text, id=state.get("reply_id") or "answer"), state_key=None
        )
