"""Self-RAG, CRAG and InstructRAG as prebuilt LangGraph graphs.

The names below are imported at their first use: ``import selfcorrect_rag`` itself loads nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfcorrect_rag.agents import CorrectiveRetriever, SupportJudge, as_tool
    from selfcorrect_rag.crag import crag_builder, create_crag
    from selfcorrect_rag.instruct_rag import create_instruct_rag, instruct_rag_builder
    from selfcorrect_rag.search_r1 import create_search_r1, search_r1_builder
    from selfcorrect_rag.self_crag import create_self_crag, self_crag_builder
    from selfcorrect_rag.self_rag import create_self_rag, self_rag_builder
    from selfcorrect_rag.settings import (
        CRAGSettings,
        InstructRAGSettings,
        SelfCRAGSettings,
        SelfRAGSettings,
    )
    from selfcorrect_rag.ui.page import render_run, show_run

__version__ = "0.1.0"

__all__ = [
    "CRAGSettings",
    "CorrectiveRetriever",
    "InstructRAGSettings",
    "SelfCRAGSettings",
    "SelfRAGSettings",
    "SupportJudge",
    "__version__",
    "as_tool",
    "crag_builder",
    "create_crag",
    "create_instruct_rag",
    "create_search_r1",
    "create_self_crag",
    "create_self_rag",
    "instruct_rag_builder",
    "render_run",
    "search_r1_builder",
    "self_crag_builder",
    "self_rag_builder",
    "show_run",
]

_MODULES = {
    **dict.fromkeys(("CorrectiveRetriever", "SupportJudge", "as_tool"), "agents"),
    **dict.fromkeys(("create_crag", "crag_builder"), "crag"),
    **dict.fromkeys(("create_instruct_rag", "instruct_rag_builder"), "instruct_rag"),
    **dict.fromkeys(("create_search_r1", "search_r1_builder"), "search_r1"),
    **dict.fromkeys(("create_self_crag", "self_crag_builder"), "self_crag"),
    **dict.fromkeys(("create_self_rag", "self_rag_builder"), "self_rag"),
    **dict.fromkeys(("render_run", "show_run"), "ui.page"),
}
"""The module that defines a name; the settings classes are in ``settings``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'settings')}")
    globals()[name] = value = getattr(module, name)
    return value
