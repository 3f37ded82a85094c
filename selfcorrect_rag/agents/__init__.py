"""The graphs in LangChain agents: a tool, middleware, a corrective retriever, a support judge."""

from typing import TYPE_CHECKING, Any

from selfcorrect_rag.agents.corrective_retriever import CorrectiveRetriever
from selfcorrect_rag.agents.revise import (
    UnsupportedSpan,
    afind_unsupported_spans,
    find_unsupported_spans,
    revise_answer,
)
from selfcorrect_rag.agents.support import (
    SentenceSupport,
    Support,
    SupportJudge,
    missing_support,
    unsupported,
)
from selfcorrect_rag.agents.tool import as_tool

if TYPE_CHECKING:
    from selfcorrect_rag.agents.middleware import (
        CitationMiddleware,
        GroundingMiddleware,
        RevisionMiddleware,
    )

_MIDDLEWARE = ("CitationMiddleware", "GroundingMiddleware", "RevisionMiddleware")
__all__ = [
    "CitationMiddleware",
    "CorrectiveRetriever",
    "GroundingMiddleware",
    "RevisionMiddleware",
    "SentenceSupport",
    "Support",
    "SupportJudge",
    "UnsupportedSpan",
    "afind_unsupported_spans",
    "as_tool",
    "find_unsupported_spans",
    "missing_support",
    "revise_answer",
    "unsupported",
]


def __getattr__(name: str) -> Any:
    if name in _MIDDLEWARE:  # needs langchain, which the rest does not
        from selfcorrect_rag.agents import middleware

        return getattr(middleware, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
