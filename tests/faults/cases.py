"""Cases of the fault table, and what they see."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

GRAPHS = ("self_rag", "crag", "self_crag", "instruct_rag")
FORMS = ("sync", "async")


class Seen(NamedTuple):
    """What a fault came to."""

    error: BaseException | None = None
    says: Sequence[str] = ()
    """Notes of a result, or lines that a command printed."""
    goes_on: str = "no"
    """As the table words it, and only where that was tried: "yes" with a result, "from its thread"
    or "when run again" with the result of the second run."""
    stopped: str | None = None
    again: Sequence[str] = ()
    """What had been done before the fault and was done once more."""


class Case(NamedTuple):
    """A way to provoke a fault."""

    section: str
    fault: str
    provoke: Callable[..., Seen]
    """Takes, by name, ``graph`` and ``form`` where it has them, and fixtures."""
    graphs: Sequence[str]

    def variants(self) -> Iterator[dict[str, str]]:
        """The graphs and forms in which it is to be seen."""
        takes = self.takes()
        for graph in self.graphs if "graph" in takes else ("",):
            for form in FORMS if "form" in takes else ("",):
                given = {"graph": graph, "form": form}
                yield {name: value for name, value in given.items() if value}

    def takes(self) -> Sequence[str]:
        """The names of its arguments."""
        code = self.provoke.__code__
        return code.co_varnames[: code.co_argcount]


CASES: list[Case] = []


def fault(section: str, fault: str, graphs: Sequence[str] = GRAPHS) -> Any:
    """Register a function as the case of the row of that name in that section."""

    def registered(provoke: Callable[..., Seen]) -> Callable[..., Seen]:
        CASES.append(Case(section, fault, provoke, graphs))
        return provoke

    return registered
