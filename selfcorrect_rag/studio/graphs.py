"""One factory a graph, as langgraph.json names them.

A server calls them for each request. Only one that runs the graph opens models, in a thread of its
own and once; to show schemas, or to read and edit a thread, a sketch of the graph does.
"""

import asyncio
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from langgraph.graph.state import CompiledStateGraph
from langgraph_sdk.runtime import ServerRuntime

from selfcorrect_rag.agents import as_tool
from selfcorrect_rag.commands.demonstrations import with_default_mode
from selfcorrect_rag.crag import create_crag
from selfcorrect_rag.errors import require
from selfcorrect_rag.instruct_rag import create_instruct_rag
from selfcorrect_rag.self_crag import create_self_crag
from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.settings import CRAGSettings, InstructRAGSettings
from selfcorrect_rag.studio.options import from_environment
from selfcorrect_rag.studio.parts import Parts

Graph = CompiledStateGraph[Any, Any, Any, Any]
Build = Callable[[Parts], Graph]

AGENT_PROMPT = (
    "Answer from documents: for every question of fact call the tool, in words that stand alone, "
    "and answer from what it says alone. Keep its citation marks, [1] and so on, and list their "
    "sources. Where it found nothing, say so."
)


async def self_rag(runtime: ServerRuntime[Any]) -> Graph:
    """Self-RAG."""
    return await _made(_self_rag, runtime)


async def crag(runtime: ServerRuntime[Any]) -> Graph:
    """CRAG."""
    return await _made(_crag, runtime)


async def self_crag(runtime: ServerRuntime[Any]) -> Graph:
    """Self-CRAG."""
    return await _made(_self_crag, runtime)


async def instruct_rag(runtime: ServerRuntime[Any]) -> Graph:
    """InstructRAG."""
    return await _made(_instruct_rag, runtime)


async def chat_agent(runtime: ServerRuntime[Any]) -> Graph:
    """A LangChain agent with CRAG as its tool; the knobs are CRAG's."""
    return await _made(_chat_agent, runtime)


def _self_rag(parts: Parts) -> Graph:
    return create_self_rag(parts.llm, parts.retriever, follow_up=parts.chat_model)


def _crag(parts: Parts) -> Graph:
    return create_crag(
        parts.chat_model or parts.llm,
        parts.retriever,
        parts.evaluator,
        parts.web,
        rewriter=parts.chat_model,
        follow_up=parts.chat_model,
    )


def _self_crag(parts: Parts) -> Graph:
    return create_self_crag(
        parts.llm,
        parts.retriever,
        parts.evaluator,
        parts.web,
        rewriter=parts.chat_model,
        follow_up=parts.chat_model,
    )


def _instruct_rag(parts: Parts) -> Graph:
    shown, nano = parts.demonstrations, parts.nano and parts.chat_model is None
    settings = with_default_mode(InstructRAGSettings(), nano=nano, demonstrations=shown)
    return create_instruct_rag(
        parts.rationale_llm,
        parts.retriever,
        shown,
        follow_up=parts.chat_model,
        settings=settings,
    )


def _chat_agent(parts: Parts) -> Graph:
    agents = require("langchain.agents", "agents")
    agent: Graph = agents.create_agent(
        parts.agent_model,
        [as_tool(_crag(parts), context="agent")],
        system_prompt=AGENT_PROMPT,
        context_schema=CRAGSettings,
        name="chat_agent",
    )
    return agent


async def _made(build: Build, runtime: ServerRuntime[Any]) -> Graph:
    # Even a sketch reads the environment and imports, which an event loop should not wait for.
    make = _sketched if runtime.execution_runtime is None else _loaded
    return await asyncio.to_thread(make, build)


_loading = threading.RLock()


@cache
def _parts() -> Parts:
    return Parts(from_environment())


@cache
def _graph(build: Build) -> Graph:
    return build(_parts())


def _loaded(build: Build) -> Graph:
    with _loading:  # runs that begin together open each model once
        return _graph(build)


@cache
def _sketched(build: Build) -> Graph:
    return build(Parts(from_environment(), sketch=True))
