"""The knobs of one run of each graph, passed as LangGraph context."""

from selfcorrect_rag.settings.base import Context, Settings
from selfcorrect_rag.settings.crag import CRAGContext, CRAGSettings
from selfcorrect_rag.settings.instruct_rag import InstructRAGContext, InstructRAGSettings
from selfcorrect_rag.settings.self_crag import SelfCRAGContext, SelfCRAGSettings
from selfcorrect_rag.settings.self_rag import SelfRAGContext, SelfRAGSettings

__all__ = [
    "GRAPHS",
    "CRAGContext",
    "CRAGSettings",
    "Context",
    "InstructRAGContext",
    "InstructRAGSettings",
    "SelfCRAGContext",
    "SelfCRAGSettings",
    "SelfRAGContext",
    "SelfRAGSettings",
    "Settings",
]

GRAPHS: dict[str, type[Settings]] = {
    "self_rag": SelfRAGSettings,
    "crag": CRAGSettings,
    "self_crag": SelfCRAGSettings,
    "instruct_rag": InstructRAGSettings,
}
"""The graphs by name, with their settings."""
