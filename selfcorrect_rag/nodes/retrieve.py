"""retrieve: find passages for every beam that asks for them."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import BaseDocumentCompressor, Document

from selfcorrect_rag.errors import BadArgument, Fault, NoDocument, RetrievalFailed, wrap_errors
from selfcorrect_rag.events import RetrievalFailure, Retrieved
from selfcorrect_rag.intake import admit, as_documents, name_of
from selfcorrect_rag.nodes.limits import best_so_far, first_beams
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever
from selfcorrect_rag.settings import CRAGSettings, InstructRAGSettings, SelfRAGSettings, Settings
from selfcorrect_rag.state import Beam

NO_RETRIEVER = (
    "there are no documents: give documents in the input, or a retriever where the graph is made"
)


def retrieve(
    retriever: Retriever | None, settings: SelfRAGSettings | None = None
) -> Node[SelfRAGSettings]:
    """Retrieve with (question, previous segment) for each beam (Algorithm 1, line 4).

    Beams with the same previous segment share one query. Passages given by the caller are used
    instead, without a call. A retriever that fails before anything is written fails the run; later
    it only ends the beams that asked. One that returns anything but documents always fails the run.
    If the state has no beam yet, it retrieves for the first.

    Raises:
        BadArgument: ``retriever`` is not a retriever.
        NoDocument: at a run without documents, if it is None.
    """
    source = None if retriever is None else AnyRetriever(retriever)

    async def step(state: Mapping[str, Any], run: Run[SelfRAGSettings]) -> Update:
        beams = first_beams(state, "retrieve")
        wanting = [beam for beam in beams if beam["next"] == "retrieve"]
        queries = list(dict.fromkeys(query_of(state["question"], beam) for beam in wanting))
        given = state["passages"]
        found: dict[str, list[Document]] = dict.fromkeys(queries, given)
        if not state["fixed"] and queries:
            if source is None:
                raise NoDocument(NO_RETRIEVER)
            most = run.settings.passages
            lists = await run.call(source.batch, source.abatch, queries, k=most)
            run.add({"retrievals": len(queries)})
            found = {query: each[:most] for query, each in zip(queries, lists, strict=True)}
        characters = sum(len(d.page_content) for each in found.values() for d in each)
        return await run.compute(_update, state, run, beams, found, characters=characters)

    return Node("retrieve", step, SelfRAGSettings.of(settings), _end_asking_beams)


def query_of(question: str, beam: Beam) -> str:
    """Return the query for a beam's next segment."""
    previous = beam["segments"][-1]["text"] if beam["segments"] else ""
    return f"{question} {previous}".strip()


def _update(
    state: Mapping[str, Any],
    run: Run[SelfRAGSettings],
    beams: Sequence[Beam],
    found: Mapping[str, list[Document]],
) -> Update:
    notes: list[str] = []
    if not state["fixed"]:
        limit, admitted = run.settings.document_characters, {}
        for query, documents in found.items():
            admitted[query], unfit = admit(documents, limit, "retrieved documents")
            notes += unfit
        found = admitted
    passages, extended = list(state["passages"]), []
    index = {identity_of(passage): i for i, passage in enumerate(passages)}
    for beam in beams:
        if beam["next"] == "retrieve":
            query = query_of(state["question"], beam)
            retrieved = merge(found[query], passages, index)
            if not retrieved:
                notes.append(f"no passage was found for {query!r}: written without evidence")
            titles = [name_of(passages[i]) for i in retrieved]
            run.emit(Retrieved(event="retrieved", query=query, passages=titles))
            beam = {**beam, "retrieved": retrieved}
        extended.append(beam)
    return {"passages": passages, "beams": extended, "notes": notes}


def merge(
    documents: Sequence[Document], passages: list[Document], index: dict[object, int]
) -> list[int]:
    """Return the indices of documents in ``passages``, to which new ones are appended."""
    merged = []
    for document in documents:
        key = identity_of(document)
        if key not in index:
            index[key] = len(passages)
            passages.append(document)
        merged.append(index[key])
    return list(dict.fromkeys(merged))


def identity_of(document: Document) -> object:
    """Return what tells a passage from others: chunks of a file may share its id and its title."""
    return document.id, str(document.metadata.get("title") or ""), document.page_content


def _end_asking_beams(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
    update = best_so_far(state, run, fault, ends=["retrieve"])
    run.emit(RetrievalFailure(event="retrieval_failed", reason=fault.reason))
    return update


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

    return Node("retrieve", step, settings or CRAGSettings(), on_fault=_without_passages)


def _without_passages(state: Mapping[str, Any], run: Run[RetrievesOnce], fault: Fault) -> Update:
    run.emit(RetrievalFailure(event="retrieval_failed", reason=fault.reason))
    return {"passages": [], "notes": [fault.reason]}


def rerank(reranker: BaseDocumentCompressor, settings: Settings | None = None) -> Node[Any]:
    """Rerank the passages, or in Self-RAG those of each beam that has just retrieved.

    Any LangChain document compressor works, such as a cross-encoder. If it fails, the passages stay
    as they were retrieved, and a note says so.

    Raises:
        BadArgument: ``reranker`` is not a document compressor.
    """
    if not isinstance(reranker, BaseDocumentCompressor):
        kind = type(reranker).__name__
        raise BadArgument(f"reranker must be a LangChain document compressor, got {kind}")

    async def compress(run: Run[Any], documents: list[Document], query: str) -> list[Document]:
        if not documents:
            return []
        with wrap_errors(RetrievalFailed, "the reranker"):
            found = await run.call(
                reranker.compress_documents,
                reranker.acompress_documents,
                documents,
                query,
                run.config.get("callbacks"),
            )
            given = as_documents(found, "the reranker")
        limit = run.settings.document_characters
        return admit(given, limit, "reranked documents").documents

    async def step(state: Mapping[str, Any], run: Run[Any]) -> Update:
        passages: list[Document] = state["passages"]
        if not state["beams"]:
            return {"passages": await compress(run, passages, state["question"])}
        passages, beams, orders = list(passages), [], {}
        index = {identity_of(passage): i for i, passage in enumerate(passages)}
        for beam in state["beams"]:
            if beam["next"] == "retrieve":
                asked = (query_of(state["question"], beam), *beam["retrieved"])
                if asked not in orders:
                    documents = [passages[i] for i in beam["retrieved"]]
                    kept = await compress(run, documents, asked[0])
                    orders[asked] = merge(kept, passages, index)
                beam = {**beam, "retrieved": orders[asked]}
            beams.append(beam)
        return {"passages": passages, "beams": beams}

    return Node("rerank", step, settings or Settings(), _keep_order)


def _keep_order(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
    return {"notes": [f"{fault.reason}: the passages stay as they were retrieved"]}
