"""A chat agent that asks CRAG, for LangGraph Studio and the server (docs/studio.md)."""

from selfcorrect_rag.studio import chat_agent as graph

__all__ = ["graph"]
