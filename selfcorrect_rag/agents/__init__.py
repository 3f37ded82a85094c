"""The graphs in LangChain agents: a tool, middleware, a corrective retriever, a support judge."""

from typing import TYPE_CHECKING, Any

from selfcorrect_rag.agents.corrective_retriever import CorrectiveRetriever
from selfcorrect_rag.agents.support import (
    SentenceSupport,
    Support,
    SupportJudge,
    missing_support,
    unsupported,
)
from selfcorrect_rag.agents.tool import as_tool

if TYPE_CHECKING:
    from selfcorrect_rag.agents.middleware import CitationMiddleware, GroundingMiddleware

_MIDDLEWARE = ("CitationMiddleware", "GroundingMiddleware")
__all__ = [
    "CitationMiddleware",
    "CorrectiveRetriever",
    "GroundingMiddleware",
    "SentenceSupport",
    "Support",
    "SupportJudge",
    "as_tool",
    "missing_support",
    "unsupported",
]


def __getattr__(name: str) -> Any:
    if name in _MIDDLEWARE:  # needs langchain, which the rest does not
        from selfcorrect_rag.agents import middleware

        return getattr(middleware, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
