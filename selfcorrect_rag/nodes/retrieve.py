"""retrieve and rerank: find passages, for the question or for every beam that asks for them."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import BaseDocumentCompressor, Document

from selfcorrect_rag.errors import BadArgument, Fault, NoDocument, RetrievalFailed, wrap_errors
from selfcorrect_rag.intake import admit, as_documents, name_of
from selfcorrect_rag.nodes.limits import add_costs, best_so_far, first_beams
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever
from selfcorrect_rag.settings import CRAGSettings, InstructRAGSettings, SelfRAGSettings, Settings
from selfcorrect_rag.state import Beam


def retrieve(
    retriever: Retriever | None, settings: SelfRAGSettings | None = None
) -> Node[SelfRAGSettings]:
    """Retrieve with (question, previous segment) for each beam (Algorithm 1, line 4).

    Beams with the same previous segment share one query. Passages given by the caller are used
    instead, without a call. A retriever that fails before anything is written fails the run; later
    it only ends the beams that asked. One that returns anything but documents always fails the run.
    """
    source = None if retriever is None else AnyRetriever(retriever)

    async def step(state: Mapping[str, Any], run: Run[SelfRAGSettings]) -> Update:
        beams, passages = first_beams(state, "retrieve"), list(state["passages"])
        asked = {
            i: _query(state["question"], beam)
            for i, beam in enumerate(beams)
            if beam["next"] == "retrieve"
        }
        queries = list(dict.fromkeys(asked.values()))
        found, notes = dict.fromkeys(queries, passages), list[str]()
        if not state["fixed"] and queries:
            found, notes = await _search(run, source, queries)
        extended = list(beams)
        for i, query in asked.items():
            retrieved = _merge(found[query], passages)
            if not retrieved:
                notes.append(f"no passage was found for {query!r}: written without evidence")
            titles = [name_of(passages[i]) for i in retrieved]
            run.emit("retrieved", query=query, passages=titles)
            extended[i] = {**beams[i], "retrieved": retrieved}
        return {"passages": passages, "beams": extended, "notes": notes}

    return Node("retrieve", step, SelfRAGSettings.of(settings), _end_asking_beams)


def retrieve_documents(
    retriever: Retriever | None, settings: CRAGSettings | InstructRAGSettings | None = None
) -> Node[Any]:
    """Retrieve with the question, unless the caller has given the documents.

    A retriever that fails is an empty retrieval with a note: CRAG corrects it like any other
    bad one, InstructRAG answers without documents.
    """
    source = None if retriever is None else AnyRetriever(retriever)

    async def step(state: Mapping[str, Any], run: Run[Any]) -> Update:
        question, passages, notes = state["question"], state["passages"], list[str]()
        if not state["fixed"]:
            found, notes = await _search(run, source, [question])
            passages = found[question]
        run.emit("retrieved", query=question, passages=[name_of(passage) for passage in passages])
        return {"passages": passages, "notes": notes}

    return Node("retrieve", step, settings or CRAGSettings(), _without_passages)


def rerank(reranker: BaseDocumentCompressor, settings: Settings | None = None) -> Node[Any]:
    """Rerank the passages, or in Self-RAG those of each beam that has just retrieved.

    Any LangChain document compressor works, such as a cross-encoder. If it fails, the passages stay
    as they were retrieved, and a note says so.
    """
    if not isinstance(reranker, BaseDocumentCompressor):
        kind = type(reranker).__name__
        raise BadArgument(f"reranker must be a LangChain document compressor, got {kind}")

    async def compress(run: Run[Any], documents: list[Document], query: str) -> list[Document]:
        if not documents:
            return []
        sync, asynchronous = reranker.compress_documents, reranker.acompress_documents
        callbacks = run.config.get("callbacks")
        with wrap_errors(RetrievalFailed, "the reranker"):
            found = await run.call(sync, asynchronous, documents, query, callbacks)
            given = as_documents(found, "the reranker")
        return admit(given, run.settings.document_characters, "reranked documents")[0]

    async def step(state: Mapping[str, Any], run: Run[Any]) -> Update:
        question, passages = state["question"], list(state["passages"])
        if not state["beams"]:
            return {"passages": await compress(run, passages, question)}
        beams, orders = list(state["beams"]), dict[tuple[Any, ...], list[int]]()
        for i, beam in enumerate(beams):
            if beam["next"] == "retrieve":
                asked = (_query(question, beam), *beam["retrieved"])
                if asked not in orders:
                    documents = [passages[i] for i in beam["retrieved"]]
                    orders[asked] = _merge(await compress(run, documents, asked[0]), passages)
                beams[i] = {**beam, "retrieved": orders[asked]}
        return {"passages": passages, "beams": beams}

    return Node("rerank", step, settings or Settings(), _keep_order)


async def _search(
    run: Run[Any], source: AnyRetriever | None, queries: list[str]
) -> tuple[dict[str, list[Document]], list[str]]:
    """Return the admitted passages of each query, and notes about them."""
    if source is None:
        raise NoDocument(
            "there are no documents: give documents in the input, or a retriever where the graph "
            "is made"
        )
    most, longest = run.settings.passages, run.settings.document_characters
    lists = await run.call(source.batch, source.abatch, queries, k=most)
    add_costs(run.costs, retrievals=len(queries))
    found, notes = {}, []
    for query, documents in zip(queries, lists, strict=True):
        size = sum(len(document.page_content) for document in documents[:most])
        found[query], unfit = await run.compute(
            admit, documents[:most], longest, "retrieved documents", characters=size
        )
        notes += unfit
    return found, notes


def _query(question: str, beam: Beam) -> str:
    previous = beam["segments"][-1]["text"] if beam["segments"] else ""
    return f"{question} {previous}".strip()


def _merge(documents: Sequence[Document], passages: list[Document]) -> list[int]:
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
    return document.id, str(document.metadata.get("title") or ""), document.page_content


def _end_asking_beams(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
    update = best_so_far(state, run, fault, ends=["retrieve"])
    run.emit("retrieval_failed", reason=fault.reason)
    return update


def _without_passages(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
    run.emit("retrieval_failed", reason=fault.reason)
    return {"passages": [], "notes": [fault.reason]}


def _keep_order(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
    return {"notes": [f"{fault.reason}: the passages stay as they were retrieved"]}
