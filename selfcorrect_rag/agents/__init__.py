"""The graphs in LangChain agents: as a tool, or as middleware that grounds each turn."""

from typing import TYPE_CHECKING, Any

from selfcorrect_rag.agents.support import Support, missing_support
from selfcorrect_rag.agents.tool import as_tool

if TYPE_CHECKING:
    from selfcorrect_rag.agents.grounding import GroundingMiddleware

__all__ = ["GroundingMiddleware", "Support", "as_tool", "missing_support"]


def __getattr__(name: str) -> Any:
    # The middleware needs langchain, which the tool does not.
    if name == "GroundingMiddleware":
        from selfcorrect_rag.agents.grounding import GroundingMiddleware

        return GroundingMiddleware
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
