"""retrieve, for graphs that retrieve once per question."""

from langchain_core.documents import Document

from selfcorrect_rag.errors import Fault
from selfcorrect_rag.events import RetrievalFailure, Retrieved
from selfcorrect_rag.nodes.base.node import Node, Update, Work, call, current, emit
from selfcorrect_rag.nodes.base.usage import quiet
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever
from selfcorrect_rag.settings import CRAGSettings, InstructRAGSettings
from selfcorrect_rag.state.crag import CRAGState
from selfcorrect_rag.state.instruct_rag import InstructRAGState
from selfcorrect_rag.state.intake import admit
from selfcorrect_rag.state.sources import name_of

State = CRAGState | InstructRAGState
RetrievesOnce = CRAGSettings | InstructRAGSettings


def retrieve_documents(retriever: Retriever, settings: RetrievesOnce | None = None) -> Node:
    """Retrieve with the question, unless the caller has given the documents.

    A failing retriever counts as an empty retrieval, with a note: CRAG corrects it like any other
    bad one, InstructRAG answers without documents. One that returns anything but documents fails
    the run.

    Raises:
        BadArgument: ``retriever`` is not a retriever.
    """
    defaults, source = settings or CRAGSettings(), AnyRetriever(retriever)

    def run(state: State) -> Work:
        chosen = current(defaults)
        if state["fixed"]:
            return _update(state, chosen, state["passages"])
        found = yield from call(
            source.invoke, source.ainvoke, state["question"], quiet(), k=chosen.passages
        )
        return _update(state, chosen, found)

    return Node("retrieve", run, defaults, _failed)


def _update(state: State, settings: RetrievesOnce, found: list[Document]) -> Update:
    passages, notes = found, list(state["notes"])
    if not state["fixed"]:
        passages, unfit = admit(
            found[: settings.passages], settings.document_characters, "retrieved documents"
        )
        notes += unfit
    titles = [name_of(passage) for passage in passages]
    emit(Retrieved(event="retrieved", query=state["question"], passages=titles))
    return {"passages": passages, "notes": notes}


def _failed(state: State, fault: Fault) -> Update:
    emit(RetrievalFailure(event="retrieval_failed", reason=fault.reason))
    return {"passages": [], "notes": [*state["notes"], fault.reason]}
