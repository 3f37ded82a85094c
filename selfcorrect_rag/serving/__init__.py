"""Graphs as services: their configuration, the parts that it opens, and an MCP server."""

from typing import TYPE_CHECKING, Any

from selfcorrect_rag.serving.config import ServingConfig

if TYPE_CHECKING:
    from selfcorrect_rag.serving.parts import Graph, Parts, served

__all__ = ["Graph", "Parts", "ServingConfig", "served"]


def __getattr__(name: str) -> Any:
    # Parts import models and graphs; the command line needs the configuration alone, and at once.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from selfcorrect_rag.serving import parts

    return getattr(parts, name)
