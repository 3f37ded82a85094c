"""CRAG, for LangGraph Studio and the server (docs/studio.md)."""

from selfcorrect_rag.studio import crag as graph

__all__ = ["graph"]
