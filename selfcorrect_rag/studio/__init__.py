"""The graphs as a LangGraph server loads them: factories that open models when a run begins."""

from selfcorrect_rag.studio.graphs import chat_agent, crag, instruct_rag, self_crag, self_rag

__all__ = ["chat_agent", "crag", "instruct_rag", "self_crag", "self_rag"]
