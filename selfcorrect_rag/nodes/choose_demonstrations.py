"""choose_demonstrations: pick the few-shot examples of the prompt."""

import math
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from langchain_core.embeddings import Embeddings

from selfcorrect_rag.errors import BadDemonstrations, ModelFailed, wrap_errors
from selfcorrect_rag.intake import plain
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.settings import InstructRAGSettings
from selfcorrect_rag.state import Demonstration

Vector = list[float]


def choose_demonstrations(
    demonstrations: Sequence[Mapping[str, Any]],
    embeddings: Embeddings | None = None,
    settings: InstructRAGSettings | None = None,
) -> Node[Any]:
    """Sample demonstrations (Algorithm 1, line 6), or take the first or the nearest ones.

    A demonstration of the same question is never shown. Random and fixed ones keep the given order;
    the nearest is shown last, next to the question. The first run that needs embeddings of the
    demonstrations' questions keeps them for the next ones.
    """
    known: list[Demonstration] = [
        plain(d, f"demonstration {i}") for i, d in enumerate(demonstrations, 1)
    ]
    vectors: list[Vector] = []

    async def nearest(run: Run[Any], usable: Sequence[int], question: str) -> Sequence[int]:
        """Order the usable demonstrations, the nearest last."""
        if embeddings is None:
            raise BadDemonstrations(
                "selection nearest needs embeddings: create_instruct_rag(..., embeddings=...)"
            )
        with wrap_errors(ModelFailed, f"the embeddings ({type(embeddings).__name__})"):
            if not vectors:
                questions = [d["question"] for d in known]
                sync, asynchronous = embeddings.embed_documents, embeddings.aembed_documents
                vectors[:] = await run.call(sync, asynchronous, questions)
            asked = await run.call(embeddings.embed_query, embeddings.aembed_query, question)
            return sorted(usable, key=lambda i: _cosine(vectors[i], asked))

    async def step(state: Mapping[str, Any], run: Run[InstructRAGSettings]) -> Update:
        chosen, question = run.settings, state["question"]
        _check(known, state["mode"])
        asked = _normalized(question)
        usable: Sequence[int]
        usable = [i for i, d in enumerate(known) if _normalized(d["question"]) != asked]
        if chosen.selection == "nearest":
            usable = (await nearest(run, usable, question))[-chosen.demonstrations :]
        elif chosen.selection == "random":
            few = min(chosen.demonstrations, len(usable))
            usable = sorted(Random(f"{chosen.seed} {question}").sample(usable, few))
        shown = [known[i] for i in usable[: chosen.demonstrations]]
        questions = [d["question"] for d in shown]
        run.emit({"event": "demonstrations_chosen", "questions": questions})
        return {"demonstrations": shown}

    return Node("choose_demonstrations", step, InstructRAGSettings.of(settings))


def _check(demonstrations: Sequence[Demonstration], mode: str) -> None:
    """Refuse demonstrations that lack what the mode shows."""
    key = "answers" if mode == "few_shot" else "rationale"
    needs = f"mode {mode} shows demonstrations with a question and {key}"
    if not demonstrations:
        raise BadDemonstrations(f"{needs}: give create_instruct_rag some, or use mode instruct")
    for number, demonstration in enumerate(demonstrations, start=1):
        if not isinstance(demonstration, Mapping):
            kind = type(demonstration).__name__
            raise BadDemonstrations(f"demonstration {number} is not a dict but a {kind}: {needs}")
        if missing := [name for name in ("question", key) if not demonstration.get(name)]:
            raise BadDemonstrations(f"demonstration {number} has no {missing[0]}: {needs}")


def _normalized(question: str) -> str:
    return " ".join(question.casefold().split()).rstrip("?. ")


def _cosine(left: Vector, right: Vector) -> float:
    lengths = math.hypot(*left) * math.hypot(*right)
    return sum(a * b for a, b in zip(left, right, strict=True)) / lengths if lengths else 0.0
