"""InstructRAG, as LangGraph Studio and a LangGraph server load it; copy and edit."""

from selfcorrect_rag import create_instruct_rag
from selfcorrect_rag.serving import Graph, Parts, served


def build(parts: Parts) -> Graph:
    """Build the graph from the models and the index that the environment names."""
    return create_instruct_rag(
        parts.chat_model or parts.llm,
        parts.retriever,
        parts.demonstrations,
        follow_up=parts.chat_model,
        settings=parts.settings("instruct_rag"),
    )


graph = served(build)
