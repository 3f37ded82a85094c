"""A chat agent with Self-CRAG as its tool, as a LangGraph server loads it; copy and edit."""

from langchain.agents import create_agent

from selfcorrect_rag import SelfCRAGSettings, as_tool
from selfcorrect_rag.agents import CitationMiddleware
from selfcorrect_rag.serving import Graph, Parts, served

PROMPT = (
    "Answer questions of fact with the tool alone: ask it in words that stand alone, keep its "
    "citation marks, such as [1], list their sources, and say so if it found nothing."
)


def build(parts: Parts) -> Graph:
    """Build the agent; its settings are Self-CRAG's."""
    agent: Graph = create_agent(
        parts.agent_model,
        [as_tool(parts.graph("self_crag"), context="agent")],
        system_prompt=PROMPT,
        middleware=[CitationMiddleware()],
        context_schema=SelfCRAGSettings,
        name="chat_agent",
    )
    return agent


graph = served(build)
