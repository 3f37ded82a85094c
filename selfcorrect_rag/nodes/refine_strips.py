"""refine_strips and select_web_strips: what counts of retrieved documents and of web pages."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.events import StripsKept
from selfcorrect_rag.models.retrieval_evaluator import (
    RetrievalEvaluator,
    agrade,
    grade,
    titled,
)
from selfcorrect_rag.nodes.base.best_effort import best_so_far
from selfcorrect_rag.nodes.base.limits import FOR_THE_ANSWER, limit_met, stopped
from selfcorrect_rag.nodes.base.node import Node, Update, Work, call, current, emit
from selfcorrect_rag.nodes.base.strips import Decomposition, decompose, fair_shares, keep
from selfcorrect_rag.nodes.base.usage import counted_calls
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state.costs import Limit
from selfcorrect_rag.state.crag import Strip

Cut = tuple[list[int], list[str]]
"""Strips: the document that each is from, and its text."""

Result = Literal["strips", "web_strips"]
"""Where strips go in the state, and the event that says so."""


def refine_strips(evaluator: RetrievalEvaluator, settings: CRAGSettings) -> Node:
    """Decompose the retrieved documents and keep the strips that count (section 4.4)."""
    return _refinement("refine_strips", evaluator, settings, "passages", "strips", "refine")


def select_web_strips(evaluator: RetrievalEvaluator, settings: CRAGSettings) -> Node:
    """The same for what the web gave (section 4.5)."""
    return _refinement(
        "select_web_strips", evaluator, settings, "web_results", "web_strips", "select"
    )


class _Refining(NamedTuple):
    """Strips that an evaluator is asked about, or documents that are kept as they are."""

    settings: CRAGSettings
    cut: Cut
    uncut: int
    """Strips before the settings bounded their number."""
    texts: list[str]
    """What the evaluator reads; nothing where it is not asked."""
    calls: int
    limit: Limit | None
    """What left the evaluator no call."""


def _refinement(
    name: str,
    evaluator: RetrievalEvaluator,
    settings: CRAGSettings,
    source: str,
    result: Result,
    switch: str,
) -> Node:
    """From the documents at ``source`` to the strips at ``result``; ``switch`` is the setting
    that can leave it out, as a limit can."""

    def refining(state: Mapping[str, Any]) -> _Refining:
        chosen, documents = current(settings), state[source]
        whole = _cut(documents, "passage")
        if not getattr(chosen, switch):
            return _Refining(chosen, whole, 0, [], 0, None)
        every = _cut(documents, chosen.decomposition)
        cut = _bounded(every, len(documents), chosen.scored_strips)
        texts = [titled(documents[i], text) for i, text in zip(*cut, strict=True)]
        calls = evaluator.model_calls(texts)
        if calls and (limit := limit_met(state, chosen, calls + FOR_THE_ANSWER)):
            return _Refining(chosen, whole, 0, [], 0, limit)
        return _Refining(chosen, cut, len(every[0]), texts, calls, None)

    def update(
        state: Mapping[str, Any], asked: _Refining, scores: Sequence[float] | None
    ) -> Update:
        update: Update = {result: _kept(result, asked.cut, scores, asked.settings)}
        if asked.limit:
            update |= stopped(state, asked.settings, asked.limit, f"{source} were kept whole")
        if asked.uncut > len(asked.texts):
            update["notes"] = [
                *state["notes"],
                f"{len(asked.texts)} of {asked.uncut} strips of {source} were scored, the first of "
                "each document (scored_strips)",
            ]
        return update

    def run(state: Mapping[str, Any]) -> Work:
        asked, scores = refining(state), None
        if asked.calls:
            within = counted_calls(asked.calls)
            scores = yield from call(
                grade, agrade, evaluator, state["question"], asked.texts, within=within
            )
        return update(state, asked, scores)

    return Node(name, run, settings, best_so_far)


def _cut(documents: Sequence[Document], how: Decomposition) -> Cut:
    """The strips of all documents."""
    pairs = [(i, s) for i, d in enumerate(documents) for s in decompose(d.page_content, how)]
    return [i for i, _ in pairs], [text for _, text in pairs]


def _bounded(cut: Cut, documents: int, most: int) -> Cut:
    """The first strips of each document, ``most`` of all together."""
    of, texts = cut
    counts = Counter(of)
    left = fair_shares([counts[i] for i in range(documents)], most)
    pairs = []
    for i, text in zip(of, texts, strict=True):
        if left[i]:
            left[i] -= 1
            pairs.append((i, text))
    return [i for i, _ in pairs], [text for _, text in pairs]


def _kept(
    event: Result, cut: Cut, scores: Sequence[float] | None, settings: CRAGSettings
) -> list[Strip]:
    """Strips with their scores; without scores all are kept."""
    of, texts = cut
    given: Sequence[float | None] = [None] * len(texts) if scores is None else scores
    strips = [
        Strip(document=i, text=text, score=score, kept=score is None)
        for i, text, score in zip(of, texts, given, strict=True)
    ]
    if scores is not None:
        strips = keep(strips, settings.strip_threshold, settings.strips)
    kept = sum(strip["kept"] for strip in strips)
    emit(StripsKept(event=event, strips=len(strips), kept=kept))
    return strips
