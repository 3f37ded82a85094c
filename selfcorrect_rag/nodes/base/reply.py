"""The answer of a run as a message: always streamed, and added to ``messages`` where one asked."""

from collections.abc import Mapping
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, LLMResult
from langchain_core.runnables import ensure_config
from langgraph.constants import TAG_NOSTREAM
from langgraph.pregel._messages import StreamMessagesHandler

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


def say(state: Mapping[str, Any], text: str, said: int = 0, *, ends: bool = True) -> None:
    """Stream the reply like a chat model's tokens; not where the graph runs in a tool.

    Args:
        state: the node's.
        text: the reply as far as it is known.
        said: how many of its characters earlier nodes streamed.
        ends: whether it is whole.
    """
    config = ensure_config()
    if is_given_up() or runtime() is None or TAG_NOSTREAM in (config.get("tags") or ()):
        return
    given: Any = config.get("callbacks") or []
    reply_id = state.get("reply_id") or "answer"
    for handler in getattr(given, "handlers", given):
        if isinstance(handler, StreamMessagesHandler):
            _say(handler, config["metadata"], reply_id, text, text[said:], ends)


def _say(
    handler: StreamMessagesHandler,
    metadata: dict[str, Any],
    reply_id: str,
    text: str,
    new: str,
    ends: bool,
) -> None:
    """Tell LangGraph's message stream what a chat model would tell it.

    ``push_message`` gives a chunk only, which ``stream_events(version="v3")`` ignores: it reads
    the events of a message, from its start, which may be an earlier node's, to its end.
    """
    run_id = uuid5(NAMESPACE_OID, reply_id)
    started = run_id in handler.metadata
    if not (new or started):
        return

    def event(name: str, **data: Any) -> None:
        given: Any = {"event": name, **data}
        handler.on_stream_event(given, run_id=run_id)

    if not started:
        handler.on_chat_model_start({}, [], run_id=run_id, metadata=dict(metadata))
        event("message-start", role="ai", id=reply_id)
        event("content-block-start", index=0, content={"type": "text", "text": ""})
    if new:
        chunk = ChatGenerationChunk(message=AIMessageChunk(content=new, id=reply_id))
        handler.on_llm_new_token(new, chunk=chunk, run_id=run_id)  # all other streams read this
        event("content-block-delta", index=0, delta={"type": "text-delta", "text": new})
    if ends:
        event("content-block-finish", index=0, content={"type": "text", "text": text})
        event("message-finish")
        whole = ChatGeneration(message=AIMessage(text, id=reply_id))
        handler.on_llm_end(LLMResult(generations=[[whole]]), run_id=run_id)
