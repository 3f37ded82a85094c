"""Faults of a retriever."""

from typing import Any

from tests.faults.cases import Seen, fault
from tests.faults.graphs import PASSAGE, Parts, hangs, raises, seen

CORRECTING = ("crag", "self_crag")


def broken(graph: str, form: str, does: Any, after: int = 0, **context: Any) -> Seen:
    return seen(graph, form, lambda parts: parts.retriever.breaks(does, after), context)


@fault("Retriever", "raises (Self-RAG)", ["self_rag"])
@fault("Retriever", "raises (CRAG, Self-CRAG)", CORRECTING)
@fault("Retriever", "raises (InstructRAG)", ["instruct_rag"])
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, raises(ConnectionError("no route\nto the index")))


@fault("Retriever", "raises after the first segment", ["self_rag"])
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, raises(OSError("the index went away")), after=1)


@fault("Retriever", "raises while what it yields is read (Self-RAG)", ["self_rag"])
def _(graph: str, form: str) -> Seen:
    def found(query: str) -> Any:
        yield PASSAGE
        raise OSError("the index went away")

    return broken(graph, form, found)


@fault("Retriever", "hangs (Self-RAG)", ["self_rag"])
@fault("Retriever", "hangs (CRAG, Self-CRAG, InstructRAG)", [*CORRECTING, "instruct_rag"])
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, hangs, step_timeout=0.2)


@fault("Retriever", "hangs after the first segment", ["self_rag"])
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, hangs, after=1, step_timeout=0.2)


@fault("Retriever", "returns None")
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda query: None)


@fault("Retriever", "returns texts that are no Documents")
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda query: ["Emma is a novel."])


@fault("Retriever", "finds nothing (Self-RAG)", ["self_rag"])
@fault("Retriever", "finds nothing (InstructRAG)", ["instruct_rag"])
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda query: [])


@fault("Retriever", "is async, in a sync run")
def _(graph: str) -> Seen:
    async def found(query: str) -> Any:
        return [PASSAGE]

    return seen(graph, "sync", lambda parts: parts.retriever.breaks(found), resumes="async")


@fault("Retriever", "is no retriever")
def _(graph: str) -> Seen:
    def no_retriever(parts: Parts) -> None:
        parts.retriever = "path/to/index"  # type: ignore[assignment]

    return seen(graph, "sync", no_retriever)
