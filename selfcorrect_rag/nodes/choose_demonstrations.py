"""choose_demonstrations: pick the few-shot examples of the prompt."""

import asyncio
import math
import threading
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

from langchain_core.embeddings import Embeddings

from selfcorrect_rag.errors import BadDemonstrations, ModelFailed, wrap_errors
from selfcorrect_rag.events import DemonstrationsChosen
from selfcorrect_rag.intake import plain
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.settings import InstructRAGSettings, Mode
from selfcorrect_rag.state import Demonstration

Vector = list[float]


def choose_demonstrations(
    demonstrations: Sequence[Mapping[str, Any]],
    embeddings: Embeddings | None = None,
    settings: InstructRAGSettings | None = None,
) -> Node[Any]:
    """Sample demonstrations (Algorithm 1, line 6), or take the first or the nearest ones.

    A demonstration of the same question is never shown. Random and fixed ones keep the given order;
    the nearest is shown last, next to the question. All demonstrations' questions are embedded
    once, in the first run that needs them.

    Raises:
        BadDemonstrations: at a run, if they lack what the mode shows.
        ModelFailed: at a run, if the embeddings raise, or give vectors of different lengths.
    """
    known: list[Demonstration] = [
        plain(d, f"demonstration {i}") for i, d in enumerate(demonstrations, 1)
    ]
    embedded = _Embedded([d.get("question", "") for d in known])

    async def step(state: Mapping[str, Any], run: Run[InstructRAGSettings]) -> Update:
        chosen, question = run.settings, state["question"]
        mode: Mode = "few_shot" if state["mode"] == "few_shot" else "icl"
        usable = _usable(known, question, mode)
        if chosen.selection == "nearest":
            shown = await _nearest(run, usable, embedded, embeddings, question)
        else:
            indices = list(usable)
            if chosen.selection == "random":
                few = min(chosen.demonstrations, len(indices))
                indices = sorted(Random(f"{chosen.seed} {question}").sample(indices, few))
            shown = [usable[i] for i in indices[: chosen.demonstrations]]
        questions = [d["question"] for d in shown]
        run.emit(DemonstrationsChosen(event="demonstrations_chosen", questions=questions))
        return {"demonstrations": shown}

    return Node("choose_demonstrations", step, InstructRAGSettings.of(settings))


def _usable(
    demonstrations: Sequence[Demonstration], question: str, mode: Mode
) -> dict[int, Demonstration]:
    """Return the demonstrations of other questions, by their index among all."""
    key, what = ("rationale", "a rationale") if mode == "icl" else ("answers", "answers")
    if not demonstrations:
        raise BadDemonstrations(
            f"mode {mode} shows demonstrations and there are none: give "
            f"create_instruct_rag demonstrations with a question and {what}, or use mode instruct"
        )
    for number, demonstration in enumerate(demonstrations, start=1):
        if not demonstration.get("question") or not demonstration.get(key):
            raise BadDemonstrations(
                f"demonstration {number} has no question or lacks {what}, which mode {mode} shows"
            )
    asked = _normalized(question)
    return {i: d for i, d in enumerate(demonstrations) if _normalized(d["question"]) != asked}


def _normalized(question: str) -> str:
    return " ".join(question.casefold().split()).rstrip("?. ")


async def _nearest(
    run: Run[InstructRAGSettings],
    usable: Mapping[int, Demonstration],
    embedded: "_Embedded",
    embeddings: Embeddings | None,
    question: str,
) -> list[Demonstration]:
    if embeddings is None:
        raise BadDemonstrations(
            "selection nearest needs embeddings: create_instruct_rag(..., embeddings=...)"
        )
    name = f"the embeddings ({type(embeddings).__name__})"
    with wrap_errors(ModelFailed, name):
        vectors = await run.call(embedded.embed, embedded.aembed, embeddings)
        asked = await run.call(embeddings.embed_query, embeddings.aembed_query, question)
    if len(lengths := {len(each): None for each in (*vectors, asked)}) > 1:
        raise ModelFailed(f"{name} gave vectors of {' and of '.join(map(str, lengths))} numbers")
    nearest_last = sorted(usable, key=lambda i: _cosine(vectors[i], asked))
    return [usable[i] for i in nearest_last[-run.settings.demonstrations :]]


def _cosine(left: Vector, right: Vector) -> float:
    lengths = math.hypot(*left) * math.hypot(*right)
    return sum(a * b for a, b in zip(left, right, strict=True)) / lengths if lengths else 0.0


class _Embedded:
    """The embeddings of all questions, computed once; a failure is not kept.

    Threads wait for each other, and so do the tasks of an event loop. A thread never waits for a
    task, which may need that very thread's event loop.
    """

    def __init__(self, questions: list[str]) -> None:
        self._questions = questions
        self._vectors: list[Vector] | None = None
        self._thread = threading.Lock()
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
        self._loops = WeakKeyDictionary()

    def embed(self, embeddings: Embeddings) -> list[Vector]:
        with self._thread:
            if self._vectors is None:
                self._vectors = embeddings.embed_documents(self._questions)
            return self._vectors

    async def aembed(self, embeddings: Embeddings) -> list[Vector]:
        async with self._loops.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if self._vectors is None:
                self._vectors = await embeddings.aembed_documents(self._questions)
            return self._vectors
