"""Measure the graphs beyond LangGraph: CPU time for one question, and Self-RAG's functions.

One segment, two passages, a scripted model; CRAG takes both branches. Each is compared with a bare
graph of as many nodes as it passes. ``python -m benchmarks.graph [-v]``
"""

import json
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

import selfcorrect_rag
from selfcorrect_rag.crag import create_crag
from selfcorrect_rag.instruct_rag import create_instruct_rag
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator
from selfcorrect_rag.reflection import GROUP_OF, TOKENS, Reflection
from selfcorrect_rag.self_crag import create_self_crag
from selfcorrect_rag.self_rag import create_self_rag
from selfcorrect_rag.state import Segment

ROOT = str(Path(selfcorrect_rag.__file__).parent)
QUESTION: Any = {"question": "What colour is the door?"}


def reflection(token: str) -> Reflection:
    """A reflection that is sure of ``token``."""
    group = GROUP_OF[token]
    logprobs = {t: math.log(0.9 if t == token else 0.1) for t in TOKENS[group]}
    return Reflection(group=group, position=0, token=token, logprobs=logprobs)


class Scripted(ReflectionLLM):
    """Wants evidence, and writes one supported segment for every passage."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _segments(self, prompts: Any, **options: Any) -> list[Segment]:
        tokens = ["[Relevant]", "[Fully supported]", "[Utility:5]"]
        given = ["[Retrieval]"] if options.get("choose") else tokens
        written: Any = {"text": "The door is red.", "pieces": [], "next": None, "requests": 0}
        counts: Any = {"tokens": 5, "logprob": -1.0, "prompt_tokens": 40, "shortened": 0}
        reflections = [reflection(token) for token in given]
        segment: Any = {"reflections": reflections, "finish_reason": "end", **written, **counts}
        return [segment for _ in prompts]

    async def _asegments(self, prompts: Any, **options: Any) -> list[Segment]:
        return self._segments(prompts, **options)


class Unsure(RetrievalEvaluator):
    """Calls every passage neither relevant nor irrelevant, so that both branches run."""

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        return [0.0 for _ in passages]


def graphs() -> dict[str, Any]:
    """Every graph of this package, by name."""
    documents = [Document("The door is red.", metadata={"title": t}) for t in ("Door", "House")]
    web, model = [Document("The door was painted red.", metadata={"title": "Web"})], Scripted()
    correction = (lambda _: documents, Unsure(), lambda _: web)
    return {
        "self_rag": create_self_rag(model, lambda _: documents),
        "crag": create_crag(model, *correction),
        "self_crag": create_self_crag(model, *correction),
        "instruct_rag": create_instruct_rag(model, lambda _: documents),
    }


def bare_graph(steps: int = 6) -> Any:
    """A LangGraph graph of so many nodes, one after the other, which do nothing."""

    class State(TypedDict, total=False):
        question: str

    graph = StateGraph(State)
    names = [f"step_{number}" for number in range(steps)]
    for previous, name in zip([START, *names], names, strict=False):
        graph.add_node(name, lambda state: {"question": state["question"]})
        graph.add_edge(previous, name)
    return graph.add_edge(names[-1], END).compile()


def count_functions(run: Callable[[], object]) -> Counter[str]:
    """How often each function of this package is entered during ``run``; no comprehensions."""
    entered: Counter[str] = Counter()

    def profile(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name[0] != "<":
            entered[f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return entered


def cpu_ms(
    runs: Sequence[Callable[[], object]], rounds: int = 40, repeats: int = 10
) -> list[tuple[float, ...]]:
    """CPU milliseconds of each run, in rounds of some repeats of each, one after the other: what
    else the machine does in a round costs all of them."""
    found = []
    for _ in range(rounds):
        times = [time.process_time()]
        for run in runs:
            for _ in range(repeats):
                run()
            times.append(time.process_time())
        found.append(tuple(1000 * (end - start) / repeats for start, end in pairwise(times)))
    return found


def measure(graph: Any) -> dict[str, float]:
    """The nodes that one question passes, and its CPU milliseconds beside a bare graph's."""
    steps = len(graph.invoke(QUESTION)["route"])
    bare = bare_graph(steps)
    runs = [lambda: graph.invoke(QUESTION), lambda: bare.invoke(QUESTION)]
    cpu_ms(runs, rounds=1)
    times = cpu_ms(runs)
    ours, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    more = statistics.median(own - their for own, their in times)
    figures = {"cpu_ms": ours, "bare_ms": theirs, "more_ms": more}
    return {"steps": steps, **{name: round(value, 2) for name, value in figures.items()}}


def main() -> None:
    """Print the figures, with -v also the functions."""
    made = graphs()
    graph = made["self_rag"]
    for _ in range(5):
        graph.invoke(QUESTION)
    entered = count_functions(lambda: graph.invoke(QUESTION))
    if "-v" in sys.argv:
        print("\n".join(f"  {count:4d} {name}" for name, count in entered.most_common()))
    line = {"benchmark": "graph", "functions": len(entered), "entered": entered.total()}
    print(json.dumps(line | {name: measure(each) for name, each in made.items()}))


if __name__ == "__main__":
    main()
