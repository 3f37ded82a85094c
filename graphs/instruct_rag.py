"""InstructRAG, for LangGraph Studio and the server (docs/studio.md)."""

from selfcorrect_rag.studio import instruct_rag as graph

__all__ = ["graph"]
