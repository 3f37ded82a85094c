"""Self-RAG, as LangGraph Studio and a LangGraph server load it; copy and edit."""

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.serving import Graph, Parts, served


def build(parts: Parts) -> Graph:
    """Build the graph from the models and the index that the environment names."""
    return create_self_rag(
        parts.llm,
        parts.retriever,
        follow_up=parts.chat_model,
        settings=parts.settings("self_rag"),
    )


graph = served(build)
