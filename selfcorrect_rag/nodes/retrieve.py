"""retrieve: find passages, for the question or for every beam that asks for them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from langchain_core.documents import BaseDocumentCompressor, Document

from selfcorrect_rag.errors import BadArgument, Fault, NoDocument, RetrievalFailed, wrap_errors
from selfcorrect_rag.intake import as_documents, name_of, title_of
from selfcorrect_rag.nodes.limits import add_costs, best_so_far, first_beams
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever
from selfcorrect_rag.settings import CRAGSettings, InstructRAGSettings, SelfRAGSettings
from selfcorrect_rag.state import Beam

Reranker = BaseDocumentCompressor | None
"""A LangChain document compressor, such as a cross-encoder. If it fails, the passages stay as they
were retrieved, and a note says so."""
Found = tuple[dict[str, list[Document]], list[str]]
Find = Callable[[Mapping[str, Any], Run[Any], list[str]], Awaitable[Found]]


def retrieve(
    retriever: Retriever | None, settings: SelfRAGSettings | None = None, reranker: Reranker = None
) -> Node[SelfRAGSettings]:
    """Retrieve with (question, previous segment) for each beam (Algorithm 1, line 4).

    Beams with the same previous segment share one query. Passages given by the caller are used
    instead, without a call. A retriever that fails before anything is written fails the run; later
    it only ends the beams that asked. One that returns anything but documents always fails the run.
    """
    find = finder(retriever, reranker)

    async def step(state: Mapping[str, Any], run: Run[SelfRAGSettings]) -> Update:
        beams, passages = list(first_beams(state)), list(state["passages"])
        wanting = [i for i, beam in enumerate(beams) if beam["next"] == "retrieve"]
        queries = {i: _query(state["question"], beams[i]) for i in wanting}
        found, notes = await find(state, run, list(dict.fromkeys(queries.values())))
        for i, query in queries.items():
            retrieved = merge(found[query], passages)
            if not retrieved:
                notes.append(f"no passage was found for {query!r}: written without evidence")
            titles = [name_of(passages[i]) for i in retrieved]
            run.emit("retrieved", query=query, passages=titles)
            beams[i] = {**beams[i], "retrieved": retrieved}
        return {"passages": passages, "beams": beams, "notes": notes}

    def failed(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
        update = best_so_far(state, run, fault, ends=["retrieve"])
        run.emit("retrieval_failed", reason=fault.reason)
        return update

    return Node("retrieve", step, SelfRAGSettings.of(settings), failed)


def retrieve_documents(
    retriever: Retriever | None,
    settings: CRAGSettings | InstructRAGSettings | None = None,
    reranker: Reranker = None,
) -> Node[Any]:
    """Retrieve with the question, unless the caller has given the documents.

    A retriever that fails is an empty retrieval with a note: CRAG corrects it like any other
    bad one, InstructRAG answers without documents.
    """
    find = finder(retriever, reranker)

    async def step(state: Mapping[str, Any], run: Run[Any]) -> Update:
        question = state["question"]
        found, notes = await find(state, run, [question])
        titles = [name_of(passage) for passage in found[question]]
        run.emit("retrieved", query=question, passages=titles)
        return {"passages": found[question], "notes": notes}

    def failed(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
        run.emit("retrieval_failed", reason=fault.reason)
        return {"passages": [], "notes": [fault.reason]}

    return Node("retrieve", step, settings or CRAGSettings(), failed)


def finder(retriever: Retriever | None, reranker: Reranker) -> Find:
    """Return a function that gives the admitted passages of each query, and notes about them."""
    source = None if retriever is None else AnyRetriever(retriever)
    if not isinstance(reranker, Reranker):
        kind = type(reranker).__name__
        raise BadArgument(f"reranker must be a LangChain document compressor, got {kind}")

    async def find(state: Mapping[str, Any], run: Run[Any], queries: list[str]) -> Found:
        found: dict[str, list[Document]] = dict.fromkeys(queries, state["passages"])
        notes, most = list[str](), run.settings.passages
        if queries and not state["fixed"]:
            if source is None:
                raise NoDocument(
                    "there are no documents: give documents in the input, or a retriever where the "
                    "graph is made"
                )
            lists = await run.call(source.batch, source.abatch, queries, k=most)
            add_costs(run.costs, retrievals=len(queries))
            for query, given in zip(queries, lists, strict=True):
                found[query], unfit = await run.admit(given[:most], "retrieved documents")
                notes += unfit
        for query, documents in found.items():
            if reranker is None or not documents:
                continue
            twins = reranker.compress_documents, reranker.acompress_documents
            try:
                with wrap_errors(RetrievalFailed, "the reranker"):
                    kept = as_documents(await run.call(*twins, documents, query), "the reranker")
                found[query], _ = await run.admit(kept, "reranked documents")
            except RetrievalFailed as fault:
                notes.append(f"{fault.reason}: the passages stay as they were retrieved")
        return found, notes

    return find


def _query(question: str, beam: Beam) -> str:
    previous = beam["segments"][-1]["text"] if beam["segments"] else ""
    return f"{question} {previous}".strip()


def merge(documents: Sequence[Document], passages: list[Document]) -> list[int]:
    """Return the indices of documents in ``passages``, to which new ones are appended."""
    index = {_identity(passage): i for i, passage in enumerate(passages)}
    merged = []
    for document in documents:
        key = _identity(document)
        if key not in index:
            index[key] = len(passages)
            passages.append(document)
        merged.append(index[key])
    return list(dict.fromkeys(merged))


def _identity(document: Document) -> object:
    """Return what tells a passage from others: chunks of a file may share its id and its title."""
    return document.id, title_of(document), document.page_content
