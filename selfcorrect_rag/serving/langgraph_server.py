"""The graphs of a LangGraph server, one factory each, as langgraph.json names them.

A server calls them for each request. Only one that runs the graph needs models, which are opened
once, by a thread in the background; to show schemas, or to read and edit a thread, a sketch of the
graph does.
"""

import asyncio
import logging
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

from langgraph_sdk.runtime import ServerRuntime

from selfcorrect_rag.agents import as_tool
from selfcorrect_rag.errors import require
from selfcorrect_rag.models.off_loop import spare_from_collection
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Graph, Parts
from selfcorrect_rag.settings import SelfCRAGSettings

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


NAMES = ("self_rag", "crag", "self_crag", "instruct_rag", "chat_agent")
self_rag, crag, self_crag, instruct_rag, chat_agent = map(_served, NAMES)

WARM = "The models are open"
"""What the log says once no run has to wait for them."""
# Of each run without a thread: the server gives it a durability, and no checkpointer.
warnings.filterwarnings("ignore", "`durability` has no effect", UserWarning)

_opening = threading.RLock()


@asynccontextmanager
async def warming(app: object) -> AsyncIterator[None]:
    """The lifespan of a server that opens its models while it starts to listen."""
    threading.Thread(target=_warm, name="warming", daemon=True).start()
    yield


def _warm() -> None:
    for sketch in (True, False):
        for name in NAMES:
            with suppress(Exception):  # the run that needs what cannot be opened says why
                _graph(name, sketch)
    logging.getLogger(__name__).info(WARM)


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
    """A LangChain agent with Self-CRAG as its tool; its settings are Self-CRAG's."""
    agents = require("langchain.agents", "agents")
    from selfcorrect_rag.agents.citing import CitationMiddleware

    agent: Graph = agents.create_agent(
        parts.agent_model,
        [as_tool(parts.graph("self_crag"), context="agent")],
        system_prompt=AGENT_PROMPT,
        middleware=[CitationMiddleware()],
        context_schema=SelfCRAGSettings,
        name="chat_agent",
    )
    return agent
