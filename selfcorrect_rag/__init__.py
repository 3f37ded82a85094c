"""Self-RAG, CRAG and InstructRAG as prebuilt LangGraph graphs."""

from selfcorrect_rag.agents.tool import as_tool
from selfcorrect_rag.crag import create_crag
from selfcorrect_rag.instruct_rag import create_instruct_rag
from selfcorrect_rag.render import render_route, render_run, show_run
from selfcorrect_rag.self_crag import create_self_crag
from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.settings import (
    CRAGSettings,
    InstructRAGSettings,
    SelfCRAGSettings,
    SelfRAGSettings,
)

__all__ = [
    "CRAGSettings",
    "InstructRAGSettings",
    "SelfCRAGSettings",
    "SelfRAGSettings",
    "as_tool",
    "create_crag",
    "create_instruct_rag",
    "create_self_crag",
    "create_self_rag",
    "render_route",
    "render_run",
    "show_run",
]
