"""What keeping a thread costs: Self-CRAG over models that cost nothing, by saver and durability.

    python -m benchmarks.durability

Prints one line of JSON. Runs of all kinds take turns, so that they share whatever else the machine
does; ``over_none`` is the median of each kind over that of the run without a checkpointer, in
milliseconds and as a ratio. PostgreSQL is one of its own with default settings, left out where it
is not installed; SQLite and PostgreSQL write to this machine's disk.
"""

import itertools
import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver

from benchmarks.graph import PASSAGES, FreeReflectionLLM
from integrations.langgraph_server.services import NotInstalled, postgres
from selfcorrect_rag import create_self_crag
from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.search import RetrieverWebSearch

REPEATS, WARM_UP = 30, 3
DURABILITIES = ("exit", "async", "sync")


class FreeEvaluator(RetrievalEvaluator):
    """Finds everything ambiguous, at once, so that every node of CRAG runs."""

    def score(self, question: str, passages: Any) -> list[float]:
        return [0.0] * len(passages)


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        savers: dict[str, Any] = {
            "memory": InMemorySaver(),
            "sqlite": stack.enter_context(SqliteSaver.from_conn_string(str(folder / "threads"))),
        }
        try:
            address = stack.enter_context(postgres())
            savers["postgres"] = stack.enter_context(PostgresSaver.from_conn_string(address))
            savers["postgres"].setup()
        except NotInstalled as error:
            print(f"without PostgreSQL: {error}")
        print(json.dumps({"benchmark": "durability", **measured(savers)}))


def measured(savers: dict[str, Any], repeats: int = REPEATS) -> dict[str, Any]:
    """Milliseconds of a run without a checkpointer, and of each kind over that."""
    graphs = {name: _graph(saver) for name, saver in {"none": None, **savers}.items()}
    kinds = [("none", None), *itertools.product(savers, DURABILITIES)]
    times: dict[tuple[str, Any], list[float]] = {kind: [] for kind in kinds}
    for repeat in range(WARM_UP + repeats):
        for name, durability in kinds:
            config: Any = {"configurable": {"thread_id": f"{durability} {repeat}"}}
            started = time.perf_counter()
            graphs[name].invoke({"question": "Who wrote it?"}, config, durability=durability)
            if repeat >= WARM_UP:
                times[name, durability].append(1000 * (time.perf_counter() - started))
    medians = {kind: statistics.median(found) for kind, found in times.items()}
    none = medians.pop(("none", None))
    over = {
        f"{name} {durability}": {"ms": round(ms - none, 1), "ratio": round(ms / none, 2)}
        for (name, durability), ms in medians.items()
    }
    return {"none_ms": round(none, 1), "over_none": over}


def _graph(checkpointer: Any) -> Any:
    def retriever(query: str) -> list[Document]:
        return PASSAGES

    web = RetrieverWebSearch(RunnableLambda(retriever), "the same passages")
    return create_self_crag(
        FreeReflectionLLM(), retriever, FreeEvaluator(), web, checkpointer=checkpointer
    )


if __name__ == "__main__":
    main()
