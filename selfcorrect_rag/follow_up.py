"""What the graphs put between reading a question and answering it."""

from typing import Any

from langchain_core.runnables import Runnable
from langgraph.graph import StateGraph

from selfcorrect_rag.nodes.rewrite_follow_up import rewrite_follow_up
from selfcorrect_rag.settings import Settings


def add_follow_up(
    graph: StateGraph[Any, Any, Any, Any], follow_up: Runnable[Any, Any] | None, settings: Settings
) -> str:
    """Add ``rewrite_follow_up`` after ``read_question`` where there is a model for it.

    Returns:
        The node after which the question is settled.
    """
    if follow_up is None:
        return "read_question"
    graph.add_node("rewrite_follow_up", rewrite_follow_up(follow_up, settings))
    graph.add_edge("read_question", "rewrite_follow_up")
    return "rewrite_follow_up"
