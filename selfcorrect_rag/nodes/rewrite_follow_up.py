"""rewrite_follow_up: rewrite a question that refers to the conversation as a standalone one."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_messages

from selfcorrect_rag.errors import Fault
from selfcorrect_rag.events import FollowUpRewritten
from selfcorrect_rag.models.by_name import Model, as_language_model
from selfcorrect_rag.nodes.base.asking import ask
from selfcorrect_rag.nodes.base.node import Node, Update, Work, emit
from selfcorrect_rag.nodes.base.turns import TurnGraph
from selfcorrect_rag.nodes.base.usage import quiet
from selfcorrect_rag.prompts.follow_up import follow_up_prompt
from selfcorrect_rag.prompts.parts import as_text
from selfcorrect_rag.settings import Settings

RECENT = 10
"""Latest messages of the conversation that the model reads."""
LONGEST_SAID = 4000
"""Characters of each that it reads."""
LONGEST = 1000
"""Characters of a question; a model that writes more has answered, not rewritten."""


def rewrite_follow_up(llm: Model | None, settings: Settings | None = None) -> Node:
    """Rewrite the question from the history, with one call of ``llm``; none on a first turn.

    ``question`` becomes the standalone question, which is used for retrieval and answered;
    ``original_question`` keeps the user's own words. Where the model fails or its output is
    unusable, the question stays unchanged and a note says so.

    Raises:
        BadArgument: ``llm`` is not a model.
    """
    settings = settings or Settings()
    model = None if llm is None else as_language_model(llm, "follow_up")

    def run(state: Mapping[str, Any]) -> Work:
        earlier = _earlier(state)
        if model is None or not earlier:
            return {}
        prompt = follow_up_prompt(earlier, _original(state))
        return _written(state, (yield from ask(model, prompt, quiet())))

    return Node("rewrite_follow_up", run, settings, _failed)


def _original(state: Mapping[str, Any]) -> str:
    question: str = state.get("original_question") or state["question"]
    return question


def _earlier(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(Speaker, text) of each message before this turn, without tool and empty messages."""
    messages: Sequence[BaseMessage] = convert_to_messages(state.get("messages") or [])
    if "human_message_id" not in state and messages and isinstance(messages[-1], HumanMessage):
        messages = messages[:-1]  # in other graphs: ours record which message asks
    ids = [message.id or "" for message in messages]
    if state.get("human_message_id") in ids:
        messages = messages[: ids.index(state["human_message_id"])]
    said = [
        ("user" if isinstance(message, HumanMessage) else "assistant", as_text(message.content))
        for message in messages
        if isinstance(message, HumanMessage | AIMessage)
    ]
    return [(who, text[:LONGEST_SAID]) for who, text in said if text.strip()][-RECENT:]


def _written(state: Mapping[str, Any], text: str) -> Update:
    question = " ".join(text.split()).strip("\"'“”")
    if not question or len(question) > LONGEST:
        return _kept(state, "the model rewrote the follow-up question to nothing of use")
    emit(
        FollowUpRewritten(
            event="follow_up_rewritten",
            original_question=_original(state),
            question=question,
        )
    )
    return {"question": question}


def _failed(state: Mapping[str, Any], fault: Fault) -> Update:
    return _kept(state, f"rewriting the follow-up question failed: {fault.reason}")


def _kept(state: Mapping[str, Any], reason: str) -> Update:
    return {"notes": [*state["notes"], f"{reason}; it was answered as it is"]}


def add_follow_up(
    graph: TurnGraph[Any, Any, Any, Any], model: Model | None, settings: Settings
) -> str:
    """Add ``rewrite_follow_up`` after ``read_question`` where there is a model or a custom node for
    it.

    Returns:
        The name of the node after which the question is final.
    """
    if model is None and not graph.replaces("rewrite_follow_up"):
        return "read_question"
    graph.add_step("rewrite_follow_up", rewrite_follow_up(model, settings))
    graph.add_edge("read_question", "rewrite_follow_up")
    return "rewrite_follow_up"
