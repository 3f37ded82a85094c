"""The graphs of a LangGraph server, one factory each, as langgraph.json names them.

A server calls them for each request. Only one that runs the graph opens models, in a thread of its
own and once; to show schemas, or to read and edit a thread, a sketch of the graph does.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

from langgraph_sdk.runtime import ServerRuntime

from selfcorrect_rag.agents import as_tool
from selfcorrect_rag.errors import require
from selfcorrect_rag.models.off_loop import spare_from_collection
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Graph, Parts
from selfcorrect_rag.settings import CRAGSettings

AGENT_PROMPT = (
    "Answer from documents: for every question of fact call the tool, in words that stand alone, "
    "and answer from what it says alone. Keep its citation marks, [1] and so on, and list their "
    "sources. Where it found nothing, say so."
)


def _served(name: str) -> Callable[[ServerRuntime[Any]], Coroutine[Any, Any, Graph]]:
    async def factory(runtime: ServerRuntime[Any]) -> Graph:
        # Even a sketch reads the environment and imports, which an event loop should not wait for.
        sketch = runtime.execution_runtime is None
        return await asyncio.to_thread(_graph, name, sketch)

    return factory


self_rag, crag, self_crag, instruct_rag, chat_agent = map(
    _served, ("self_rag", "crag", "self_crag", "instruct_rag", "chat_agent")
)

_opening = threading.RLock()


def _graph(name: str, sketch: bool) -> Graph:
    if sketch:
        return _made(name, sketch)
    with _opening:  # runs that begin together open each model once
        return _made(name, sketch)


@cache
def _made(name: str, sketch: bool) -> Graph:
    parts = _parts(sketch)
    graph = _chat_agent(parts) if name == "chat_agent" else parts.graph(name)
    if not sketch:
        spare_from_collection()
    return graph


@cache
def _parts(sketch: bool) -> Parts:
    return Parts(ServingConfig.from_environment(), sketch=sketch)


def _chat_agent(parts: Parts) -> Graph:
    """A LangChain agent with CRAG as its tool; its settings are CRAG's."""
    agents = require("langchain.agents", "agents")
    from selfcorrect_rag.agents.citing import CitationMiddleware

    agent: Graph = agents.create_agent(
        parts.agent_model,
        [as_tool(parts.graph("crag"), context="agent")],
        system_prompt=AGENT_PROMPT,
        middleware=[CitationMiddleware()],
        context_schema=CRAGSettings,
        name="chat_agent",
    )
    return agent
