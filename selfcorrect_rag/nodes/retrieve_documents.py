"""retrieve, for graphs that retrieve once: the documents of a question."""

from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable
from langgraph.errors import GraphBubbleUp

from selfcorrect_rag.crag_state import CRAGState
from selfcorrect_rag.events import RetrievalFailed, Retrieved
from selfcorrect_rag.instruct_settings import InstructRAGSettings
from selfcorrect_rag.instruct_state import InstructRAGState
from selfcorrect_rag.nodes.base import Node, Update, current, emit, quiet
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.sources import name_of

State = CRAGState | InstructRAGState
RetrievesOnce = CRAGSettings | InstructRAGSettings


def retrieve_documents(
    retriever: Runnable[str, list[Document]], settings: RetrievesOnce
) -> Node[Any]:
    """Retrieve with the question, unless the caller has given the documents.

    A retriever that fails is a retrieval that found nothing: CRAG corrects that as any other bad
    one, InstructRAG answers without documents, and a note says what happened.
    """

    def run(state: State) -> Update:
        if state["fixed"]:
            return _update(state, current(settings), state["passages"])
        try:
            return _update(state, current(settings), retriever.invoke(state["question"], quiet()))
        except Exception as error:
            return _failed(state, error)

    async def arun(state: State) -> Update:
        if state["fixed"]:
            return _update(state, current(settings), state["passages"])
        try:
            found = await retriever.ainvoke(state["question"], quiet())
        except Exception as error:
            return _failed(state, error)
        return _update(state, current(settings), found)

    return Node(run, arun)


def _update(state: State, settings: RetrievesOnce, found: list[Document]) -> Update:
    passages = found if state["fixed"] else found[: settings.passages]
    titles = [name_of(passage) for passage in passages]
    emit(Retrieved(event="retrieved", query=state["question"], passages=titles))
    return {"passages": passages}


def _failed(state: State, error: Exception) -> Update:
    if isinstance(error, GraphBubbleUp):  # an interrupt inside the retriever is no failure
        raise error
    reason = f"retrieval failed: {type(error).__name__}: {error}"
    emit(RetrievalFailed(event="retrieval_failed", reason=reason))
    return {"passages": [], "notes": [*state["notes"], reason]}
