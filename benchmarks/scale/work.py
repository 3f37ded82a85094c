"""What a question takes here, by graph and setting: calls, tokens, passages graded, searches."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langgraph.cache.memory import InMemoryCache

from benchmarks.heartbeat import graphs as scripted_graphs
from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.nano import (
    demo_index,
    demo_questions,
    demo_web,
    load_generator,
    load_rationale_model,
)
from selfcorrect_rag.reader import Reader, ReaderEvaluator

IN_FLIGHT = 16
EVERY = 8
"""Every so many of the demo's questions: facts, misleading ones, and some that need no passage."""
PRUNE_BELOW = 0.5
VARIANTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "Self-RAG": ("self_rag", {}),
    "Self-RAG, always retrieving": ("self_rag", {"mode": "always"}),
    "Self-RAG, pruning": ("self_rag", {"prune_below": PRUNE_BELOW}),
    "Self-RAG, 10 passages": ("self_rag", {"passages": 10}),
    "Self-RAG, 10 passages, pruning": ("self_rag", {"passages": 10, "prune_below": PRUNE_BELOW}),
    "Self-RAG, asked again": ("self_rag_cached", {}),
    "CRAG": ("crag", {}),
    "Self-CRAG": ("self_crag", {}),
    "InstructRAG": ("instruct_rag", {}),
}


class Counting(RetrievalEvaluator):
    """Another evaluator, and how many passages and strips it has scored."""

    def __init__(self, evaluator: RetrievalEvaluator) -> None:
        self._evaluator, self.thresholds, self.scored = evaluator, evaluator.thresholds, 0

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        self.scored += len(passages)
        return self._evaluator.score(question, passages)

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        self.scored += len(passages)
        return await self._evaluator.ascore(question, passages)


class Graphs(NamedTuple):
    """The graphs on the nano generator, the nano rationale model and the reader."""

    by_name: Mapping[str, Any]
    evaluator: Counting

    @classmethod
    def made(cls, folder: Path) -> "Graphs":
        """On the demo's documents; a second corpus plays the web."""
        llm, evaluator = load_generator(), Counting(ReaderEvaluator(Reader.load()))
        index, web = demo_index(folder / "demo"), demo_web(folder / "web")
        parts: Any = index.as_retriever(10), evaluator, web
        return cls(
            {
                "self_rag": create_self_rag(llm, index.as_retriever(10)),
                "self_rag_cached": create_self_rag(
                    llm, index.as_retriever(10), cache=InMemoryCache()
                ),
                "crag": create_crag(llm, *parts),
                "self_crag": create_self_crag(llm, *parts),
                "instruct_rag": create_instruct_rag(load_rationale_model(), index.as_retriever(10)),
            },
            evaluator,
        )


def work(folder: Path, every: int = EVERY) -> dict[str, dict[str, float]]:
    """Means over the demo's questions, by variant."""
    made = Graphs.made(folder)
    inputs = [{"question": row["question"]} for row in demo_questions()[::every]]
    found = {}
    for variant, (name, context) in VARIANTS.items():
        graph = made.by_name[name]
        if name == "self_rag_cached":
            asyncio.run(_all(graph, inputs, context))
        made.evaluator.scored = 0
        started = time.process_time()
        results = asyncio.run(_all(graph, inputs, context))
        spent = time.process_time() - started
        found[variant] = _means(results, made.evaluator.scored, spent)
    return found


async def _all(graph: Any, inputs: Sequence[Any], context: Any) -> list[Any]:
    config = {"max_concurrency": IN_FLIGHT}
    results: list[Any] = await graph.abatch(inputs, config, context=context)
    return results


def _means(results: Sequence[Mapping[str, Any]], scored: int, spent: float) -> dict[str, float]:
    count = len(results)

    def steps(name: str) -> float:
        taken = [step["step"] for r in results for step in r["route"]]
        return taken.count(name) / count

    def tokens(kind: str) -> float:
        """Of the model that writes; the evaluator reports none."""
        spent = sum(cost[kind] or 0 for r in results for cost in r["costs"].values())
        return float(spent / count)

    return {
        "questions": count,
        "model_calls": tokens("model_calls"),
        "prompt_tokens": tokens("prompt_tokens"),
        "generated_tokens": tokens("generated_tokens"),
        "graded": scored / count,
        "retrievals": steps("retrieve"),
        "searches": steps("web_search"),
        "cpu_s": spent / count,
    }


def front_end(folder: Path, runs: int = 256) -> dict[str, float]:
    """CPU seconds of a question by graph with models that answer at once: our own code, LangGraph,
    and a search of five documents."""
    found = {}
    for name, graph in scripted_graphs(folder, 1000, "scripted").items():
        inputs = [{"question": f"How many ships has the harbour of town {i}?"} for i in range(runs)]
        asyncio.run(_all(graph, inputs[:IN_FLIGHT], {}))
        started = time.process_time()
        asyncio.run(_all(graph, inputs, {}))
        found[name] = (time.process_time() - started) / runs
    return found
