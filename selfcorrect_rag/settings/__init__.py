"""The knobs of one run of each graph, passed as LangGraph context."""

from selfcorrect_rag.settings.base import Context, Settings
from selfcorrect_rag.settings.crag import CRAGContext, CRAGSettings
from selfcorrect_rag.settings.instruct_rag import InstructRAGContext, InstructRAGSettings
from selfcorrect_rag.settings.self_crag import SelfCRAGContext, SelfCRAGSettings
from selfcorrect_rag.settings.self_rag import SelfRAGContext, SelfRAGSettings

__all__ = [
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
