"""The answer of a run as a message: always streamed, and added to ``messages`` where one asked."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import UsageMetadata, subtract_usage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, LLMResult
from langchain_core.runnables import ensure_config
from langgraph.constants import TAG_NOSTREAM
from langgraph.pregel._messages import StreamMessagesHandler

from selfcorrect_rag.models.chat_model import model_name
from selfcorrect_rag.nodes.base.annotations import STANDARD, cited_content
from selfcorrect_rag.nodes.base.node import Update, is_given_up, runtime
from selfcorrect_rag.nodes.base.usage import counter
from selfcorrect_rag.state.common import Citation

NO_ANSWER = "No answer: the model wrote nothing."
"""The text in place of an empty answer."""
SILENT = "the model wrote nothing: the answer says so"
"""The note about an empty answer."""


def reply(
    state: Mapping[str, Any], text: str, citations: Sequence[Citation] = (), llm: object = None
) -> Update:
    """The update with a node's whole reply, as :func:`kept`.

    It is streamed once: token by token by a chat model, else whole.
    """
    streamed = counter().message
    if streamed is None:
        say(state, text)
    return kept(state, text, citations, llm, streamed)


def kept(
    state: Mapping[str, Any],
    text: str,
    citations: Sequence[Citation] = (),
    llm: object = None,
    streamed: AIMessage | None = None,
) -> Update:
    """The update with a reply that was streamed; empty where ``question`` asked, not a message.

    Its content is one standard block and its usage that of the run so far. Since LangGraph streams
    no message whose id it has seen, a last chunk without text brings what the stream lacks: the
    annotations, the usage and the model's name. In ``stream_events(version="v3")`` a chat model's
    own message has ended by then, and lacks them.

    Args:
        state: the node's.
        text: the whole reply.
        citations: what it cites.
        llm: the model that wrote it, which is named where its message does not.
        streamed: the message of the chat model that streamed it; None where :func:`say` did.
    """
    said = streamed or AIMessage("", id=_id(state))
    name = said.response_metadata.get("model_name") or model_name(llm)
    message = AIMessage(
        cited_content(text, citations),
        id=said.id,
        usage_metadata=_usage(state),
        response_metadata={**({"model_name": name} if name else {}), **STANDARD},
    )
    _end(message, said)
    return {} if state.get("human_message_id") is None else {"messages": [message]}


def annotated(state: Mapping[str, Any], citations: Sequence[Citation]) -> Update:
    """The update with the reply of an earlier step and what it cites; empty if it has none."""
    if not citations or state.get("human_message_id") is None:
        return {}
    last = state["messages"][-1]
    message = last.model_copy(update={"content": cited_content(str(last.text), citations)})
    _end(message, last)
    return {"messages": [message]}


def say(state: Mapping[str, Any], text: str, said: int = 0) -> None:
    """Stream the reply like a chat model's tokens; not where the graph runs in a tool.

    Args:
        state: the node's.
        text: the reply as far as it is known; :func:`kept` ends it.
        said: how many of its characters earlier nodes streamed.
    """
    if len(text) > said:
        for handler in _streams():
            _say(handler, _id(state), text[said:])


def _say(handler: StreamMessagesHandler, reply_id: str, new: str) -> None:
    """Tell LangGraph's message stream what a chat model would tell it.

    LangGraph's ``push_message`` gives a chunk only, which ``stream_events(version="v3")`` ignores:
    it reads the events of a message, from its start, which may be an earlier node's, to its end.
    """
    run_id = _run_id(reply_id)
    if run_id not in handler.metadata:
        _begin(handler, run_id)
        _event(handler, run_id, "message-start", role="ai", id=reply_id)
        _event(
            handler, run_id, "content-block-start", index=0, content={"type": "text", "text": ""}
        )
    chunk = ChatGenerationChunk(message=AIMessageChunk(content=[_part(new)], id=reply_id))
    handler.on_llm_new_token(new, chunk=chunk, run_id=run_id)  # all other streams read this
    delta = {"type": "text-delta", "text": new}
    _event(handler, run_id, "content-block-delta", index=0, delta=delta)


def _end(message: AIMessage, streamed: AIMessage) -> None:
    """Stream what ``streamed`` lacks of ``message``, and that it is whole."""
    block: Any = message.content[0]
    # Joined chunks add usage up, and strings of metadata too.
    known, usage = streamed.response_metadata, message.usage_metadata
    rest = {k: v for k, v in message.response_metadata.items() if k not in known}
    left = subtract_usage(usage, streamed.usage_metadata) if usage else None
    last = AIMessageChunk(
        content=[{**block, **_part("")}],
        id=message.id,
        usage_metadata=left,
        response_metadata=rest,
    )
    run_id = _run_id(str(message.id))
    for handler in _streams():
        is_ours = run_id in handler.metadata
        if not is_ours and message.id not in handler.seen:
            continue  # not streamed since a pause: LangGraph streams the node's message whole
        if is_ours:
            told = {"usage": usage} if usage else {}
            _event(handler, run_id, "content-block-finish", index=0, content=block)
            _event(handler, run_id, "message-finish", metadata=message.response_metadata, **told)
        else:
            _begin(handler, run_id)
        handler.on_llm_new_token("", chunk=ChatGenerationChunk(message=last), run_id=run_id)
        whole = LLMResult(generations=[[ChatGeneration(message=message)]])
        handler.on_llm_end(whole, run_id=run_id)


def _begin(handler: StreamMessagesHandler, run_id: UUID) -> None:
    metadata = dict(ensure_config()["metadata"])
    handler.on_chat_model_start({}, [], run_id=run_id, metadata=metadata)


def _event(handler: StreamMessagesHandler, run_id: UUID, name: str, **data: Any) -> None:
    given: Any = {"event": name, **data}
    handler.on_stream_event(given, run_id=run_id)


def _streams() -> list[StreamMessagesHandler]:
    """What listens to the messages of this run."""
    config = ensure_config()
    if is_given_up() or runtime() is None or TAG_NOSTREAM in (config.get("tags") or ()):
        return []
    given: Any = config.get("callbacks") or []
    handlers = getattr(given, "handlers", given)
    return [handler for handler in handlers if isinstance(handler, StreamMessagesHandler)]


def _part(text: str) -> dict[str, Any]:
    """A part of the reply's block: parts of one index are joined."""
    return {"type": "text", "text": text, "index": 0}


def _id(state: Mapping[str, Any]) -> str:
    return state.get("reply_id") or "answer"


def _run_id(reply_id: str) -> UUID:
    return uuid5(NAMESPACE_OID, reply_id)


def _usage(state: Mapping[str, Any]) -> UsageMetadata | None:
    """The tokens of the run so far, with this node's; None where no model tells any."""
    costs = [*(state.get("costs") or {}).values(), counter().cost(0.0)]
    told = [
        (cost["prompt_tokens"], cost["generated_tokens"]) for cost in costs if cost["model_calls"]
    ]
    known = [(read, written) for read, written in told if None not in (read, written)]
    if not known:
        return None
    read, written = (sum(tokens or 0 for tokens in column) for column in zip(*known, strict=True))
    return UsageMetadata(input_tokens=read, output_tokens=written, total_tokens=read + written)
