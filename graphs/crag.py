"""CRAG, for LangGraph Studio and the server; docs/studio.md says what it runs on."""

from selfcorrect_rag.studio import crag as graph

__all__ = ["graph"]
