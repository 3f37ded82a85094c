"""What CRAG adds to plain RAG with the same model, retriever and documents.

    python -m benchmarks.crag

Factual questions of the demo corpus, ten documents each; the reader grades, the nano generator
answers, and every action is Correct (a web search would measure a network). Plain RAG is the same
graph with an evaluator that costs nothing and no refinement. The two take turns, question by
question. Ends in one line of JSON:

crag_over_plain     time of CRAG over that of plain RAG, sum of all questions
added_ms            a question
evaluator_ms        of it: two batches, documents and strips
pairs               scored a question
answer_ms           the generator, a question, under plain RAG and under CRAG: strips are shorter to
                    read than whole documents
"""

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from selfcorrect_rag import create_crag
from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.nano import demo_index, demo_questions, demo_web, load_generator
from selfcorrect_rag.reader import Reader, ReaderEvaluator
from selfcorrect_rag.settings import CRAGSettings

QUESTIONS = 40


class Free(RetrievalEvaluator):
    """Finds everything relevant, at once."""

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        return [1.0] * len(passages)


class Timed(RetrievalEvaluator):
    """Another evaluator, and what it took."""

    def __init__(self, evaluator: RetrievalEvaluator) -> None:
        self.evaluator, self.seconds, self.pairs = evaluator, 0.0, 0

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        started = time.perf_counter()
        scores = self.evaluator.score(question, passages)
        self.seconds += time.perf_counter() - started
        self.pairs += len(passages)
        return scores


def timed(graph: Any, question: str) -> tuple[float, float]:
    """Seconds of a question, and those of them in the node that answers."""
    started = time.perf_counter()
    before = generate = 0.0
    for update in graph.stream({"question": question}, stream_mode="updates"):
        now = time.perf_counter()
        if "generate" in update:
            generate = now - before
        before = now
    return time.perf_counter() - started, generate


def main() -> None:
    llm, evaluator = load_generator(), Timed(ReaderEvaluator(Reader.load()))
    questions = [row["question"] for row in demo_questions() if row["kind"] == "fact"][:QUESTIONS]
    with tempfile.TemporaryDirectory() as folder:
        retriever = demo_index(Path(folder) / "demo").as_retriever(10)
        web = demo_web(Path(folder) / "web")
        # Never below the lower threshold, never only between the two.
        correct = CRAGSettings(upper=-1.0, lower=-1.0)
        plain = create_crag(
            llm, retriever, Free(), web, settings=CRAGSettings(refine=False, upper=0, lower=0)
        )
        crag = create_crag(llm, retriever, evaluator, web, settings=correct)
        for graph in (plain, crag):
            graph.invoke({"question": questions[0]})  # loads what is loaded once
        evaluator.seconds = evaluator.pairs = 0
        runs = [(timed(plain, question), timed(crag, question)) for question in questions]
    of_plain, of_crag = (sum(run[i][0] for run in runs) for i in (0, 1))
    generate = [1000 * sum(run[i][1] for run in runs) / len(runs) for i in (0, 1)]
    figures = {
        "crag_over_plain": of_crag / of_plain,
        "plain_ms": 1000 * of_plain / len(runs),
        "added_ms": 1000 * (of_crag - of_plain) / len(runs),
        "evaluator_ms": 1000 * evaluator.seconds / len(runs),
        "pairs": evaluator.pairs / len(runs),
    }
    rounded: dict[str, Any] = {name: round(value, 2) for name, value in figures.items()}
    rounded["answer_ms"] = [round(value, 2) for value in generate]
    print(json.dumps({"benchmark": "crag", "questions": len(questions), **rounded}))


if __name__ == "__main__":
    main()
