"""The graphs in LangChain agents, and their parts for who wants no whole graph.

A graph as a tool, as a subagent, or as middleware that grounds each turn; CRAG's correction as a
retriever, its evaluator as a document compressor, a judge of support, a router.
"""

from typing import TYPE_CHECKING, Any

from selfcorrect_rag.agents.adaptive_router import AdaptiveRouter, Route
from selfcorrect_rag.agents.corrective_retriever import CorrectiveRetriever
from selfcorrect_rag.agents.evaluator_filter import EvaluatorFilter
from selfcorrect_rag.agents.support import Support, missing_support, unsupported
from selfcorrect_rag.agents.support_judge import SentenceSupport, SupportJudge
from selfcorrect_rag.agents.tool import as_subagent, as_tool

if TYPE_CHECKING:
    from selfcorrect_rag.agents.citing import CitationMiddleware
    from selfcorrect_rag.agents.grounding import GroundingMiddleware

__all__ = [
    "AdaptiveRouter",
    "CitationMiddleware",
    "CorrectiveRetriever",
    "EvaluatorFilter",
    "GroundingMiddleware",
    "Route",
    "SentenceSupport",
    "Support",
    "SupportJudge",
    "as_subagent",
    "as_tool",
    "missing_support",
    "unsupported",
]


def __getattr__(name: str) -> Any:
    # Middleware needs langchain, which the rest does not.
    if name == "CitationMiddleware":
        from selfcorrect_rag.agents.citing import CitationMiddleware

        return CitationMiddleware
    if name == "GroundingMiddleware":
        from selfcorrect_rag.agents.grounding import GroundingMiddleware

        return GroundingMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
