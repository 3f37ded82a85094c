"""read_question: take the turn's input and start with a clean slate."""

from langchain_core.messages import HumanMessage

from selfcorrect_rag.errors import NoQuestion
from selfcorrect_rag.nodes.base import Node, Update, plain_node
from selfcorrect_rag.prompts import as_text
from selfcorrect_rag.state import SelfRAGState, Usage


def read_question() -> Node:
    """Find the question and reset what an earlier turn of the thread left behind.

    An unanswered human message at the end of ``messages`` is the question; otherwise
    ``question`` is.
    """
    return plain_node(_read)


def _read(state: SelfRAGState) -> Update:
    documents = state.get("documents")
    return {
        "question": _question(state),
        "fixed": documents is not None,
        "passages": documents or [],
        "answer": "",
        "cited_answer": "",
        "citations": [],
        "candidates": [],
        "beams": [],
        "depth": 0,
        "options": {},
        "score": None,
        "constraints_met": True,
        "notes": [],
        "usage": Usage(
            model_calls=0,
            prompts=0,
            prompt_tokens=0,
            generated_tokens=0,
            retrievals=0,
            pruned=0,
            tokens_saved=0,
        ),
    }


def _question(state: SelfRAGState) -> str:
    messages = state.get("messages") or []
    asked = messages and isinstance(messages[-1], HumanMessage)
    question = as_text(messages[-1].content) if asked else state.get("question", "")
    if not isinstance(question, str) or not question.strip():
        raise NoQuestion(
            'the question is empty: give {"question": "..."} or messages that end with a human '
            "message"
        )
    return question.strip()
