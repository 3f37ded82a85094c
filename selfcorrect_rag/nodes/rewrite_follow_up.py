"""rewrite_follow_up: a question that leans on the conversation, in words that stand alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.runnables import Runnable
from langgraph.errors import GraphBubbleUp

from selfcorrect_rag.events import FollowUpRewritten
from selfcorrect_rag.nodes.base import Node, Update, emit, quiet
from selfcorrect_rag.prompts import as_text, follow_up_prompt, written_text

RECENT = 10
"""Messages of the conversation that the model reads, the latest."""
LONGEST = 1000
"""Characters of a question; a model that writes more has answered, not rewritten."""


def rewrite_follow_up(llm: Runnable[Any, Any]) -> Node[Any]:
    """Rewrite the question from the history, with one call of ``llm``; none on a first turn.

    ``question`` becomes what stands alone, which is what is retrieved for and answered; ``asked``
    keeps the user's own words. Where the model fails, or writes nothing of use, the question stays
    as it is and a note says so.
    """

    def run(state: Mapping[str, Any]) -> Update:
        earlier = _earlier(state)
        if not earlier:
            return {}
        try:
            return _written(state, llm.invoke(follow_up_prompt(earlier, state["asked"]), quiet()))
        except Exception as error:
            return _failed(state, error)

    async def arun(state: Mapping[str, Any]) -> Update:
        earlier = _earlier(state)
        if not earlier:
            return {}
        try:
            written = await llm.ainvoke(follow_up_prompt(earlier, state["asked"]), quiet())
        except Exception as error:
            return _failed(state, error)
        return _written(state, written)

    return Node(run, arun)


def _earlier(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Who said what before this turn, tools and empty messages aside."""
    messages: Sequence[AnyMessage] = state.get("messages") or []
    ids = [message.id or "" for message in messages]
    if state.get("asked_by") in ids:
        messages = messages[: ids.index(state["asked_by"])]
    said = [
        ("user" if isinstance(message, HumanMessage) else "assistant", as_text(message.content))
        for message in messages
        if isinstance(message, HumanMessage | AIMessage)
    ]
    return [(who, text) for who, text in said if text.strip()][-RECENT:]


def _written(state: Mapping[str, Any], written: object) -> Update:
    text = written_text(written)
    question = " ".join(text.split()).strip("\"'“”")
    if not question or len(question) > LONGEST:
        return _kept(state, "the model rewrote the follow-up question to nothing of use")
    emit(FollowUpRewritten(event="follow_up_rewritten", asked=state["asked"], question=question))
    return {"question": question}


def _failed(state: Mapping[str, Any], error: Exception) -> Update:
    if isinstance(error, GraphBubbleUp):
        raise error
    reason = f"rewriting the follow-up question failed: {type(error).__name__}: {error}"
    return _kept(state, reason)


def _kept(state: Mapping[str, Any], reason: str) -> Update:
    return {"notes": [*state["notes"], f"{reason}; it was answered as it is"]}
