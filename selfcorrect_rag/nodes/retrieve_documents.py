"""retrieve, for graphs that retrieve once per question."""

from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.errors import Fault, NoDocument
from selfcorrect_rag.events import RetrievalFailure, Retrieved
from selfcorrect_rag.intake import admit, name_of
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever
from selfcorrect_rag.settings import CRAGSettings, InstructRAGSettings

RetrievesOnce = CRAGSettings | InstructRAGSettings


def retrieve_documents(
    retriever: Retriever | None, settings: RetrievesOnce | None = None
) -> Node[Any]:
    """Retrieve with the question, unless the caller has given the documents.

    A failing retriever counts as an empty retrieval, with a note: CRAG corrects it like any other
    bad one, InstructRAG answers without documents. One that returns something other than documents
    fails the run.

    Args:
        retriever: None if every run gives its documents.
        settings: the factory's.

    Raises:
        BadArgument: ``retriever`` is not a retriever.
        NoDocument: at a run without documents, if there is no retriever.
    """
    source = None if retriever is None else AnyRetriever(retriever)

    async def step(state: Mapping[str, Any], run: Run[RetrievesOnce]) -> Update:
        passages, notes = state["passages"], list[str]()
        if not state["fixed"]:
            if source is None:
                raise NoDocument(
                    "there is nothing to read: give documents in the input, or a retriever where "
                    "the graph is made"
                )
            most, longest = run.settings.passages, run.settings.document_characters
            found = await run.call(source.invoke, source.ainvoke, state["question"], k=most)
            run.add({"retrievals": 1})
            size = sum(len(document.page_content) for document in found[:most])
            passages, notes = await run.compute(
                admit, found[:most], longest, "retrieved documents", characters=size
            )
        titles = [name_of(passage) for passage in passages]
        run.emit(Retrieved(event="retrieved", query=state["question"], passages=titles))
        return {"passages": passages, "notes": notes}

    return Node("retrieve", step, settings or CRAGSettings(), on_fault=_failed)


def _failed(state: Mapping[str, Any], run: Run[RetrievesOnce], fault: Fault) -> Update:
    run.emit(RetrievalFailure(event="retrieval_failed", reason=fault.reason))
    return {"passages": [], "notes": [fault.reason]}
