"""Self-RAG by prompts, against the LangGraph tutorial's scheme, with the same model and questions.

    python -m benchmarks.prompted [--limits N ...] [--made-up N]

Both get the nano generator as a chat model (:mod:`benchmarks.generator_chat` says what it can do),
the demo corpus, five documents a question. The tutorial's scheme (:mod:`benchmarks.tutorial`)
grades each document by a call, then the answer by two, and loops at most three times. All 160
questions of the demo corpus: facts, some of which the corpus lacks; misleading ones, whose answer
it lacks; and ones that need no document. With ``--made-up N`` in their place N questions of fact
about the nano models' world, of names and wordings never trained on, each with one gold passage and
four that mislead. Ends in one line of JSON, figures a question:

calls, tokens       asked of the model; tokens by the generator's tokenizer, all prompts included
seconds             of the run here, one question after another: the model is tiny and local, so
                    that this says nothing about a provider
accuracy            of the facts: a gold answer stands in the answer, as words
by kind             calls of facts, misleading questions and those that need no document
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda

from benchmarks.generator_chat import GeneratorChat
from benchmarks.real_text import wilson
from benchmarks.tutorial import create_tutorial
from nano_training.evaluate_generator import SENTENCES, contains
from nano_training.questions import new_question
from nano_training.world import World
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models.chat.prompted_llm import PromptedReflectionLLM
from selfcorrect_rag.nano import demo_index, demo_questions, load_generator

KINDS = ("fact", "misleading", "no_retrieval")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--limits", type=int, nargs="*", default=[8, 4, 2, 1])
    parser.add_argument("--every", type=int, default=1, help="only every Nth question")
    parser.add_argument("--made-up", type=int, metavar="N", help="questions of the made-up world")
    args = parser.parse_args()
    chat = GeneratorChat(llm=load_generator())
    with tempfile.TemporaryDirectory() as folder:
        if args.made_up:
            rows, retriever = _made_up(args.made_up)
        else:
            rows = demo_questions()[:: args.every]
            retriever = demo_index(Path(folder)).as_retriever(5)
        self_rag = create_self_rag(PromptedReflectionLLM(chat), retriever)
        tutorial = create_tutorial(chat, retriever)

        def bounded(limit: int | None) -> Callable[[str], str]:
            context: Any = {"form": "short", "max_model_calls": limit}
            return lambda question: self_rag.invoke({"question": question}, context=context)[
                "answer"
            ]

        schemes: dict[str, Callable[[str], str]] = {
            "tutorial": lambda asked: tutorial.invoke({"question": asked}).get("answer", ""),
            "self_rag": bounded(None),
            **{f"self_rag_{limit}_calls": bounded(limit) for limit in args.limits},
        }
        report = {name: _measured(chat, rows, answer) for name, answer in schemes.items()}
    calls = report["self_rag"]["calls"] / report["tutorial"]["calls"]
    figures = {"questions": len(rows), "calls_over_tutorial": round(calls, 3), **report}
    print(json.dumps({"benchmark": "prompted", **figures}))


def _made_up(count: int) -> tuple[list[dict[str, Any]], Runnable[str, list[Document]]]:
    """Questions of fact in the form of the demo's, and what finds a question's own passages; for a
    rewritten question, those of the question before it."""
    world = World("prompted", held_out=True)
    rows, found = [], {}
    for _ in range(count):
        case = new_question(world, SENTENCES, held_out=True)
        found[case.question] = case.documents()
        rows.append({"question": case.question, "answers": [case.target], "kind": "fact"})
    latest: list[Document] = []

    def retrieve(query: str) -> list[Document]:
        latest[:] = found.get(query, latest)
        return list(latest)

    return rows, RunnableLambda(retrieve)


def _measured(
    chat: GeneratorChat, rows: list[dict[str, Any]], answer: Callable[[str], str]
) -> dict[str, Any]:
    """Figures of a scheme, a question."""
    calls: dict[str, list[int]] = {kind: [] for kind in KINDS}
    tokens, right = [], []
    chat.spent()
    started = time.perf_counter()
    for row in rows:
        said = answer(row["question"])
        spent = chat.spent()
        calls[row["kind"]].append(spent["calls"])
        tokens.append(spent["tokens"])
        if row["kind"] == "fact":
            right.append(contains(said, row["answers"]))
    every = [number for numbers in calls.values() for number in numbers]
    measured = {
        "calls": round(fmean(every), 2),
        "most_calls": max(every),
        "tokens": round(fmean(tokens)),
        "seconds": round((time.perf_counter() - started) / len(rows), 3),
        "accuracy": round(fmean(right), 3),
        "interval": wilson(sum(right), len(right)),
        "calls_by_kind": {kind: round(fmean(n), 2) for kind, n in calls.items() if n},
    }
    print(measured, flush=True)
    return measured


if __name__ == "__main__":
    main()
