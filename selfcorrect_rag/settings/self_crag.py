"""Self-CRAG's knobs, as a class and as a dict: those of Self-RAG and of CRAG, and one more."""

from typing import Literal

from selfcorrect_rag.settings.base import knob
from selfcorrect_rag.settings.crag import CRAGContext, CRAGSettings
from selfcorrect_rag.settings.self_rag import SelfRAGContext, SelfRAGSettings


class SelfCRAGSettings(SelfRAGSettings, CRAGSettings):
    """The knobs of both graphs, and how CRAG's knowledge becomes Self-RAG's passages."""

    graph = "Self-CRAG"

    passages: int = knob(
        10, "Documents retrieved and graded (section 4.2: generally 10).", "retrieve", ge=1, le=100
    )
    contexts: Literal["action", "all"] = knob(
        "action",
        "Passages that Self-RAG reads: the knowledge that the action asks for, document by "
        "document, or, as in the official code, internal, external and combined knowledge of "
        "every question as three passages.",
        "grade_documents",
        "recompose_knowledge",
    )


class SelfCRAGContext(SelfRAGContext, CRAGContext, total=False):
    """Some knobs of Self-CRAG, as a dict: those of :class:`SelfCRAGSettings`."""

    contexts: Literal["action", "all"]
