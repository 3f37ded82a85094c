"""Faults of a retriever."""

from tests.faults.cases import Seen, fault
from tests.faults.graphs import Parts, seen


@fault("Retriever", "returns None")
def _(graph: str, form: str) -> Seen:
    def breaks(parts: Parts) -> None:
        parts.retriever.broken = lambda query: None

    return seen(graph, form, breaks)
