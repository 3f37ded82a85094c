"""read_question: take the turn's input and start with a clean slate."""

from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.messages import HumanMessage

from selfcorrect_rag.errors import NoQuestion
from selfcorrect_rag.nodes.base import Node, Update, plain_node
from selfcorrect_rag.prompts import as_text


def read_question(blank: Callable[[], Update]) -> Node[Any]:
    """Find the question and reset what an earlier turn of the thread left behind.

    An unanswered human message at the end of ``messages`` is the question; otherwise
    ``question`` is. ``blank`` gives the graph's state before anything has happened.
    """

    def run(state: Mapping[str, Any]) -> Update:
        documents = state.get("documents")
        found = {"fixed": documents is not None, "passages": documents or []}
        question = _question(state)
        return {**blank(), "question": question, "asked": question, **found}

    return plain_node(run)


def _question(state: Mapping[str, Any]) -> str:
    messages = state.get("messages") or []
    asked = messages and isinstance(messages[-1], HumanMessage)
    question = as_text(messages[-1].content) if asked else state.get("question", "")
    if not isinstance(question, str) or not question.strip():
        raise NoQuestion(
            'the question is empty: give {"question": "..."} or messages that end with a human '
            "message"
        )
    return question.strip()
