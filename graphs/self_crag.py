"""Self-CRAG, for LangGraph Studio and the server (docs/studio.md)."""

from selfcorrect_rag.studio import self_crag as graph

__all__ = ["graph"]
