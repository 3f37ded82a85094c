"""Self-RAG, for LangGraph Studio and the server; docs/studio.md says what it runs on."""

from selfcorrect_rag.studio import self_rag as graph

__all__ = ["graph"]
