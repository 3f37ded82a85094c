"""choose_demonstrations: pick the few-shot examples of the prompt."""

import asyncio
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

from langchain_core.embeddings import Embeddings

from selfcorrect_rag.errors import BadDemonstrations, ModelFailed, wrap_errors
from selfcorrect_rag.events import DemonstrationsChosen
from selfcorrect_rag.nodes.base.node import Node, Update, Work, call, current, emit
from selfcorrect_rag.settings import InstructRAGSettings
from selfcorrect_rag.settings.instruct_rag import Mode
from selfcorrect_rag.state.instruct_rag import Demonstration, InstructRAGState
from selfcorrect_rag.state.intake import fit

Vector = list[float]


def choose_demonstrations(
    demonstrations: Sequence[Mapping[str, Any]],
    embeddings: Embeddings | None = None,
    settings: InstructRAGSettings | None = None,
) -> Node:
    """Sample demonstrations (Algorithm 1, line 6), or take the first or the nearest ones.

    A demonstration of the same question is never shown. Random and fixed ones keep the given order;
    the nearest is shown last, next to the question. All demonstrations' questions are embedded
    once, in the first run that needs them; concurrent runs wait for it. Their text is sanitised
    like an input's (:func:`~selfcorrect_rag.state.intake.fit`).
    """
    settings = InstructRAGSettings.of_step(settings)
    known: list[Demonstration] = [fit(demonstration) for demonstration in demonstrations]
    embedded = _Embedded(known)

    def run(state: InstructRAGState) -> Work:
        chosen, question = current(settings), state["question"]
        mode = state.get("mode") or chosen.mode or "icl"
        usable = _usable(known, question, mode)
        if chosen.selection != "nearest":
            return _update(_chosen(usable, chosen, question))
        if embeddings is None:
            raise BadDemonstrations(
                "selection nearest needs embeddings: create_instruct_rag(..., embeddings=...)"
            )
        name = f"the embeddings ({type(embeddings).__name__})"
        vectors = yield from call(
            embedded.by, embedded.aby, embeddings, within=wrap_errors(ModelFailed, name)
        )
        vector = yield from call(
            embeddings.embed_query,
            embeddings.aembed_query,
            question,
            within=wrap_errors(ModelFailed, name),
        )
        if len(lengths := {len(each): None for each in (*vectors, vector)}) > 1:
            given = " and of ".join(map(str, lengths))
            raise ModelFailed(f"{name} gave vectors of {given} numbers")
        return _update(_nearest(usable, vectors, vector, chosen.demonstrations))

    return Node("choose_demonstrations", run, settings)


class _Embedded:
    """The embeddings of all questions, computed once; a failure is not cached.

    Threads wait for each other, and so do the tasks of an event loop. A thread never waits for a
    task, which may need that very thread's event loop.
    """

    def __init__(self, demonstrations: Sequence[Demonstration]) -> None:
        self._demonstrations = demonstrations
        self._vectors: list[Vector] | None = None
        self._thread = threading.Lock()
        self._tasks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock]
        self._tasks = WeakKeyDictionary()

    def _questions(self) -> list[str]:
        return [demonstration["question"] for demonstration in self._demonstrations]

    def by(self, embeddings: Embeddings) -> list[Vector]:
        with self._thread:
            if self._vectors is None:
                self._vectors = embeddings.embed_documents(self._questions())
            return self._vectors

    async def aby(self, embeddings: Embeddings) -> list[Vector]:
        async with self._tasks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if self._vectors is None:
                self._vectors = await embeddings.aembed_documents(self._questions())
            return self._vectors


Usable = dict[int, Demonstration]
"""Demonstrations by their index among all, in order."""


def _usable(demonstrations: Sequence[Demonstration], question: str, mode: Mode) -> Usable:
    shows: Callable[[Demonstration], object] = (
        (lambda d: d.get("rationale")) if mode == "icl" else (lambda d: d.get("answers"))
    )
    what = "a rationale" if mode == "icl" else "answers"
    if not demonstrations:
        raise BadDemonstrations(
            f"mode {mode} shows demonstrations and there are none: give "
            f"create_instruct_rag demonstrations with a question and {what}, or use mode instruct"
        )
    asked = _plain(question)
    for index, demonstration in enumerate(demonstrations):
        if not demonstration.get("question") or not shows(demonstration):
            raise BadDemonstrations(
                f"demonstration {index + 1} has no question or lacks {what}, which mode "
                f"{mode} shows"
            )
    return {i: d for i, d in enumerate(demonstrations) if _plain(d["question"]) != asked}


def _plain(question: str) -> str:
    return " ".join(question.casefold().split()).rstrip("?. ")


def _chosen(usable: Usable, settings: InstructRAGSettings, question: str) -> list[Demonstration]:
    indices = list(usable)
    if settings.selection == "random":
        few = min(settings.demonstrations, len(indices))
        indices = sorted(Random(f"{settings.seed} {question}").sample(indices, few))
    return [usable[i] for i in indices[: settings.demonstrations]]


def _nearest(
    usable: Usable, vectors: Sequence[Vector], asked: Vector, number: int
) -> list[Demonstration]:
    ranked = sorted(usable, key=lambda i: _cosine(vectors[i], asked))
    return [usable[i] for i in ranked[-number:]]


def _cosine(left: Vector, right: Vector) -> float:
    lengths = math.hypot(*left) * math.hypot(*right)
    return sum(a * b for a, b in zip(left, right, strict=True)) / lengths if lengths else 0.0


def _update(chosen: list[Demonstration]) -> Update:
    questions = [d["question"] for d in chosen]
    emit(DemonstrationsChosen(event="demonstrations_chosen", questions=questions))
    return {"demonstrations": chosen}
