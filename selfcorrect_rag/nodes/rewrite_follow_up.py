"""rewrite_follow_up: rewrite a question that refers to the conversation as a standalone one."""

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, convert_to_messages

from selfcorrect_rag.errors import Fault
from selfcorrect_rag.models.from_name import Model, as_language_model
from selfcorrect_rag.nodes.node import Node, Run, Update, ask
from selfcorrect_rag.prompts.chat import follow_up_prompt
from selfcorrect_rag.prompts.parts import as_text
from selfcorrect_rag.settings import Settings

RECENT, MAX_MESSAGE = 10, 4_000
"""The model reads the last messages of the conversation, and so many characters of each."""
MAX_QUESTION = 1_000
"""Characters of a question; a model that writes more has answered, not rewritten."""


def rewrite_follow_up(follow_up: Model, settings: Settings | None = None) -> Node[Any]:
    """Rewrite the question from the history, by one model call; not on a first turn.

    ``original_question`` keeps the user's own words. If the model fails or its output is unusable,
    the original question is answered and a note says so.
    """
    model = as_language_model(follow_up, "follow_up")

    async def step(state: Mapping[str, Any], run: Run[Any]) -> Update:
        earlier = _earlier(state)
        if not earlier:
            return {}
        original = state.get("original_question") or state["question"]
        text = await ask(run, model, follow_up_prompt(earlier[-RECENT:], original))
        question = " ".join(text.split()).strip("\"'“”")
        if not question or len(question) > MAX_QUESTION:
            note = "the model's rewrite of the follow-up question was empty or too long"
            return {"notes": [f"{note}; answered the original question"]}
        run.emit(
            {"event": "follow_up_rewritten", "original_question": original, "question": question}
        )
        return {"standalone_question": question, "question": question}

    return Node("rewrite_follow_up", step, settings or Settings(), _failed)


def _failed(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
    note = f"rewriting the follow-up question failed: {fault.reason}"
    return {"notes": [f"{note}; answered the original question"]}


def _earlier(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(Speaker, text) of each message before this turn, without tool and empty messages."""
    messages = convert_to_messages(state.get("messages") or [])
    if "human_message_id" not in state and messages and isinstance(messages[-1], HumanMessage):
        messages = messages[:-1]  # in other graphs: ours record which message asks
    ids = [message.id or "" for message in messages]
    if state.get("human_message_id") in ids:
        messages = messages[: ids.index(state["human_message_id"])]
    said = [
        ("user" if isinstance(message, HumanMessage) else "assistant", as_text(message.content))
        for message in messages[-2 * RECENT :]
        if isinstance(message, HumanMessage | AIMessage)
    ]
    return [(who, text[:MAX_MESSAGE]) for who, text in said if text.strip()]
