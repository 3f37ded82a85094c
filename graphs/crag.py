"""CRAG, as LangGraph Studio and a LangGraph server load it; copy and edit."""

from selfcorrect_rag import create_crag
from selfcorrect_rag.serving import Graph, Parts, served


def build(parts: Parts) -> Graph:
    """Build the graph from the models and the index that the environment names."""
    return create_crag(
        parts.chat_model or parts.llm,
        parts.retriever,
        parts.evaluator,
        parts.web_search,
        rewriter=parts.chat_model,
        follow_up=parts.chat_model,
        settings=parts.settings("crag"),
    )


graph = served(build)
