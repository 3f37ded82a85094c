"""Self-RAG, CRAG and InstructRAG as prebuilt LangGraph graphs.

The names below are imported at their first use: ``import selfcorrect_rag`` itself loads nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selfcorrect_rag.agents import (
        AdaptiveRouter,
        CorrectiveRetriever,
        EvaluatorFilter,
        SupportJudge,
        as_subagent,
        as_tool,
    )
    from selfcorrect_rag.crag import create_crag
    from selfcorrect_rag.instruct_rag import create_instruct_rag
    from selfcorrect_rag.render import render_run, show_run
    from selfcorrect_rag.self_crag import create_self_crag
    from selfcorrect_rag.self_rag import create_self_rag
    from selfcorrect_rag.settings import (
        CRAGSettings,
        InstructRAGSettings,
        SelfCRAGSettings,
        SelfRAGSettings,
    )

__version__ = "0.1.0"

__all__ = [
    "AdaptiveRouter",
    "CRAGSettings",
    "CorrectiveRetriever",
    "EvaluatorFilter",
    "InstructRAGSettings",
    "SelfCRAGSettings",
    "SelfRAGSettings",
    "SupportJudge",
    "__version__",
    "as_subagent",
    "as_tool",
    "create_crag",
    "create_instruct_rag",
    "create_self_crag",
    "create_self_rag",
    "render_run",
    "show_run",
]

_MODULES = {
    **dict.fromkeys(
        (
            *("AdaptiveRouter", "CorrectiveRetriever", "EvaluatorFilter", "SupportJudge"),
            *("as_subagent", "as_tool"),
        ),
        "agents",
    ),
    "create_crag": "crag",
    "create_instruct_rag": "instruct_rag",
    "create_self_crag": "self_crag",
    "create_self_rag": "self_rag",
    "render_run": "render",
    "show_run": "render",
}
"""Where a name is defined; the settings classes are in ``settings``."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_MODULES.get(name, 'settings')}")
    globals()[name] = value = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
