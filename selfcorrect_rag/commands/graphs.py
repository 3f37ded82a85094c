"""The graphs that ``ask`` runs, by name."""

from collections.abc import Callable
from typing import Any, NamedTuple

from selfcorrect_rag.commands.show import show_result
from selfcorrect_rag.commands.show_crag import show_crag, show_self_crag
from selfcorrect_rag.commands.show_instruct_rag import show_instruct_rag
from selfcorrect_rag.crag import create_crag
from selfcorrect_rag.instruct_rag import create_instruct_rag
from selfcorrect_rag.self_crag import create_self_crag
from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.settings import (
    CRAGSettings,
    InstructRAGSettings,
    SelfCRAGSettings,
    SelfRAGSettings,
    Settings,
)


class Graph(NamedTuple):
    """What the command line needs to know of a graph."""

    create: Callable[..., Any]
    """Its factory: (llm, retriever), then evaluator and web search for CRAG's settings, and
    demonstrations for InstructRAG's."""
    settings: type[Settings]
    show: Callable[..., None]
    """Prints a result: (console, result, seconds, source)."""


GRAPHS = {
    "self-rag": Graph(create_self_rag, SelfRAGSettings, show_result),
    "crag": Graph(create_crag, CRAGSettings, show_crag),
    "self-crag": Graph(create_self_crag, SelfCRAGSettings, show_self_crag),
    "instruct-rag": Graph(create_instruct_rag, InstructRAGSettings, show_instruct_rag),
}
SETTINGS: dict[str, type[Settings]] = {name: graph.settings for name, graph in GRAPHS.items()}
CORRECTING = [name for name, kind in SETTINGS.items() if issubclass(kind, CRAGSettings)]
"""Those that take an evaluator and a web search."""
