"""A chat agent that asks CRAG, for LangGraph Studio and the server; docs/studio.md says what it runs on."""

from selfcorrect_rag.studio import chat_agent as graph

__all__ = ["graph"]
