"""retrieve: find passages for every beam that asks for them."""

from collections.abc import Sequence

from langchain_core.documents import Document

from selfcorrect_rag.errors import Fault
from selfcorrect_rag.events import RetrievalFailure, Retrieved
from selfcorrect_rag.nodes.base.limits import best_so_far, with_first_beam
from selfcorrect_rag.nodes.base.node import Node, Update, Work, call, current, emit
from selfcorrect_rag.nodes.base.usage import quiet
from selfcorrect_rag.search.retriever import AnyRetriever, Retriever
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state.intake import admit
from selfcorrect_rag.state.self_rag import Beam, SelfRAGState
from selfcorrect_rag.state.sources import name_of


def retrieve(retriever: Retriever, settings: SelfRAGSettings | None = None) -> Node:
    """Retrieve with (question, previous segment) for each beam (Algorithm 1, line 4).

    Beams with the same previous segment share one query. Passages given by the caller are used
    instead, without a call. A retriever that fails before anything is written fails the run; later
    it only ends the beams that asked. One that returns anything but documents always fails the run.
    Where the state has no beam yet, it retrieves for the first.

    Raises:
        BadArgument: ``retriever`` is not a retriever.
    """
    defaults, searched = SelfRAGSettings.of_step(settings), AnyRetriever(retriever)

    def run(state: SelfRAGState) -> Work:
        state = with_first_beam(state, "retrieve")
        chosen, queries, found = current(defaults), _queries(state), []
        if queries:
            found = yield from call(
                searched.batch, searched.abatch, queries, quiet(), k=chosen.passages
            )
        return _update(state, chosen, dict(zip(queries, found, strict=True)))

    return Node("retrieve", run, defaults, _failed)


def _query(question: str, beam: Beam) -> str:
    previous = beam["segments"][-1]["text"] if beam["segments"] else ""
    return f"{question} {previous}".strip()


def _queries(state: SelfRAGState) -> list[str]:
    if state["fixed"]:
        return []
    wanting = [beam for beam in state["beams"] if beam["next"] == "retrieve"]
    return list(dict.fromkeys(_query(state["question"], beam) for beam in wanting))


def _update(
    state: SelfRAGState, settings: SelfRAGSettings, found: dict[str, list[Document]]
) -> Update:
    passages = list(state.get("passages") or [])
    index = {_identity(passage): i for i, passage in enumerate(passages)}
    beams, notes = [], list(state["notes"])
    for beam in state["beams"]:
        if beam["next"] != "retrieve":
            beams.append(beam)
            continue
        query = _query(state["question"], beam)
        documents = list(state.get("passages") or [])
        if not state["fixed"]:
            documents, unfit = admit(
                found[query][: settings.passages],
                settings.document_characters,
                "retrieved documents",
            )
            notes += [note for note in unfit if note not in notes]
        retrieved = _merge(documents, passages, index)
        if not retrieved:
            notes.append(f"no passage was found for {query!r}: written without evidence")
        beams.append({**beam, "retrieved": retrieved})
        titles = [name_of(passages[i]) for i in retrieved]
        emit(Retrieved(event="retrieved", query=query, passages=titles))
    usage = {**state["usage"], "retrievals": state["usage"]["retrievals"] + len(found)}
    return {"passages": passages, "beams": beams, "notes": notes, "usage": usage}


def _merge(
    documents: Sequence[Document], passages: list[Document], index: dict[object, int]
) -> list[int]:
    """Indices of the documents in ``passages``; new ones are appended to it."""
    merged = []
    for document in documents:
        key = _identity(document)
        if key not in index:
            index[key] = len(passages)
            passages.append(document)
        merged.append(index[key])
    return list(dict.fromkeys(merged))


def _identity(document: Document) -> object:
    # The chunks of a file may share its id and its title.
    return document.id, str(document.metadata.get("title") or ""), document.page_content


def _failed(state: SelfRAGState, fault: Fault) -> Update:
    update = best_so_far(state, fault, ends=["retrieve"])
    emit(RetrievalFailure(event="retrieval_failed", reason=fault.reason))
    return update
