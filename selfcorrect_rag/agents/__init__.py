"""The graphs in LangChain agents: as a tool that a model may call, or as what grounds each turn."""

from typing import TYPE_CHECKING, Any

from selfcorrect_rag.agents.support import Support, missing_support
from selfcorrect_rag.agents.tool import as_tool

if TYPE_CHECKING:
    from selfcorrect_rag.agents.grounding import GroundingMiddleware

__all__ = ["GroundingMiddleware", "Support", "as_tool", "missing_support"]


def __getattr__(name: str) -> Any:
    # The middleware is of a class of langchain's, which the tool does without.
    if name == "GroundingMiddleware":
        from selfcorrect_rag.agents.grounding import GroundingMiddleware

        return GroundingMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
