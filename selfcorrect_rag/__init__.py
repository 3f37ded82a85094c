"""Self-RAG, CRAG and InstructRAG as prebuilt LangGraph graphs."""

from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.settings import SelfRAGSettings

__all__ = ["SelfRAGSettings", "create_self_rag"]
