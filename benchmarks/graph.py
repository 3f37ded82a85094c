"""Measure the CPU time of the graphs beyond LangGraph's: ``python -m benchmarks.graph``.

One segment, two passages, a scripted model; CRAG takes both branches. Each is compared with a bare
graph of as many nodes as it passes, in turn, so that other load on the machine falls on both.
"""

import json
import time
from itertools import pairwise
from statistics import median
from typing import Any

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from benchmarks import documents
from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from tests.crag_runs import WordEvaluator
from tests.scripted import ScriptedLLM, segment

QUESTION: Any = {"question": "What colour is the door?"}
ROUNDS, REPEATS = 40, 10


def graphs() -> dict[str, Any]:
    """Make every graph of the papers, by name."""
    judgements = [{token: 0.9} for token in ("[Relevant]", "[Fully supported]", "[Utility:5]")]
    red = segment("The door is red.", *judgements)
    model, text = ScriptedLLM(write=lambda prompt: red), "The vague door is red."
    found, web = documents([("Door", text), ("House", text)]), documents([("Web", text)])
    correction = (lambda _: found, WordEvaluator(), lambda _: web)  # which is unsure of "vague"
    return {
        "self_rag": create_self_rag(model, lambda _: found),
        "crag": create_crag(model, *correction),
        "self_crag": create_self_crag(model, *correction),
        "instruct_rag": create_instruct_rag(model, lambda _: found),
    }


def bare_graph(steps: int) -> Any:
    """Make a LangGraph graph of so many nodes, one after the other, which do nothing."""

    class State(TypedDict, total=False):
        question: str

    graph = StateGraph(State)
    names = [START, *(f"step_{number}" for number in range(steps)), END]
    for name in names[1:-1]:
        graph.add_node(name, lambda state: {"question": state["question"]})
    for previous, name in pairwise(names):
        graph.add_edge(previous, name)
    return graph.compile()


def cpu_ms(graph: Any) -> float:
    """Measure the CPU milliseconds of a question, the mean over the repeats."""
    started = time.process_time()
    for _ in range(REPEATS):
        graph.invoke(QUESTION)
    return 1000 * (time.process_time() - started) / REPEATS


def measure(graph: Any) -> dict[str, float]:
    """Return the nodes that a question passes, and its CPU milliseconds beside a bare graph's."""
    steps = len(graph.invoke(QUESTION)["route"])
    bare = bare_graph(steps)
    cpu_ms(bare)
    pairs = [(cpu_ms(graph), cpu_ms(bare)) for _ in range(ROUNDS)]
    ours, theirs = (median(column) for column in zip(*pairs, strict=True))
    figures = {"cpu_ms": ours, "bare_ms": theirs, "more_ms": median(a - b for a, b in pairs)}
    return {"steps": steps, **{name: round(value, 2) for name, value in figures.items()}}


if __name__ == "__main__":
    measured = {name: measure(graph) for name, graph in graphs().items()}
    print(json.dumps({"benchmark": "graph", **measured}))
