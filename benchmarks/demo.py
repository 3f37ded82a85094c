"""How fast the demo answers, and what the graph adds to the model.

    python -m benchmarks.demo

Prints one line of JSON: questions a second one after another, all at once by ``abatch``, and the
ratio of the former's time to that of the same model calls made directly (the decision and the
candidates of each question, with no graph, retrieval or scoring).
"""

import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.nano import demo_index, demo_questions, load_generator
from selfcorrect_rag.prompts import decision_prompt, segment_prompt
from selfcorrect_rag.reflection import Group

QUESTIONS = 40
SETTINGS: Any = {"mode": "always", "form": "short"}


def main() -> None:
    llm = load_generator()
    questions = [row["question"] for row in demo_questions() if row["kind"] == "fact"][:QUESTIONS]
    inputs: list[Any] = [{"question": question} for question in questions]
    with tempfile.TemporaryDirectory() as folder:
        graph = create_self_rag(llm, demo_index(Path(folder)).as_retriever())
        graph.invoke(inputs[0])  # loads the embedding model

        started = time.perf_counter()
        results = [graph.invoke(each, context=SETTINGS) for each in inputs]
        one_by_one = time.perf_counter() - started

        started = time.perf_counter()
        asyncio.run(graph.abatch(inputs))
        together = time.perf_counter() - started

    started = time.perf_counter()
    for question, result in zip(questions, results, strict=True):
        llm.choose([decision_prompt(question)], Group.RETRIEVE)
        passages = result["passages"]
        llm.generate_segments(
            [segment_prompt(question, [], passages, "retrieve", i) for i in range(len(passages))]
        )
    direct = time.perf_counter() - started
    figures = {
        "questions_per_second": len(questions) / one_by_one,
        "questions_per_second_abatch": len(questions) / together,
        "graph_over_model_calls": one_by_one / direct,
    }
    rounded = {name: round(value, 2) for name, value in figures.items()}
    print(json.dumps({"benchmark": "demo", "questions": len(questions), **rounded}))


if __name__ == "__main__":
    main()
