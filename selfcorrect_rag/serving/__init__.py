"""Graphs as services: their configuration, the parts that it opens, and an MCP server."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfcorrect_rag.serving.config import ServingConfig
    from selfcorrect_rag.serving.parts import Graph, Parts, served

__all__ = ["Graph", "Parts", "ServingConfig", "served"]


def __getattr__(name: str) -> Any:
    # The command line needs the configuration alone, and at once; parts import models and graphs.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "config" if name == "ServingConfig" else "parts"
    return getattr(import_module(f"{__name__}.{module}"), name)
