"""The answer of a run as a message: streamed for all, kept where a message asked."""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.runnables import ensure_config
from langgraph.constants import TAG_NOSTREAM
from langgraph.graph.message import push_message

from selfcorrect_rag.nodes.base.node import Update, is_given_up, runtime
from selfcorrect_rag.nodes.base.usage import counter

NO_ANSWER = "No answer: the model wrote nothing."
"""Stands for an answer where there is none."""
SILENT = "the model wrote nothing: the answer says so"
"""The note about that."""


def reply(state: Mapping[str, Any], text: str) -> Update:
    """The whole reply of a node that has asked a model for it, as an update.

    Whoever listens hears it once: as a chat model streams it or, where none did, whole.
    """
    streamed = counter().message_id
    if streamed is None:
        say(state, text)
    return kept(state, text, streamed)


def kept(state: Mapping[str, Any], text: str, id: str | None = None) -> Update:
    """A reply that was streamed, as an update; empty where ``question`` asked, and no message did.

    Args:
        state: the node's.
        text: all of it.
        id: what it was streamed under, by default that of :func:`say`: a message is not streamed
            once more under an id that was.
    """
    if state.get("human_message_id") is None:
        return {}
    return {"messages": [AIMessage(text, id=id or state["reply_id"])]}


def say(state: Mapping[str, Any], text: str) -> None:
    """Stream a part of the reply, as chat models stream theirs: not where the graph is a tool's."""
    if is_given_up() or runtime() is None:
        return
    if text and TAG_NOSTREAM not in (ensure_config().get("tags") or ()):
        push_message(
            AIMessageChunk(content=text, id=state.get("reply_id") or "answer"), state_key=None
        )
