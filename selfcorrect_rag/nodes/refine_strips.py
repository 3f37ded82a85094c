"""refine_strips and select_web_strips: what counts of retrieved documents and of web pages."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.documents import Document

from selfcorrect_rag.events import StripsKept
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, titled
from selfcorrect_rag.nodes.base import Node, Update, current, emit
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import CRAGState, Strip
from selfcorrect_rag.strips import decompose, keep

Cut = tuple[list[int], list[str]]
"""Strips: the document that each is from, and its text."""

Result = Literal["strips", "web_strips"]
"""Where strips go in the state, and the event that says so."""


def refine_strips(evaluator: RetrievalEvaluator, settings: CRAGSettings) -> Node[CRAGState]:
    """Decompose the retrieved documents and keep the strips that count (section 4.4)."""
    return _refinement(evaluator, settings, "passages", "strips", "refine")


def select_web_strips(evaluator: RetrievalEvaluator, settings: CRAGSettings) -> Node[CRAGState]:
    """The same for what the web gave (section 4.5)."""
    return _refinement(evaluator, settings, "web_results", "web_strips", "select")


def _refinement(
    evaluator: RetrievalEvaluator, settings: CRAGSettings, source: str, result: Result, switch: str
) -> Node[Any]:
    """From the documents at ``source`` to the strips at ``result``; ``switch`` is the setting
    that can leave it out."""

    def run(state: Mapping[str, Any]) -> Update:
        chosen = current(settings)
        on = getattr(chosen, switch)
        strips = _cut(state[source], chosen, on)
        texts = _read(strips, state[source])
        scores = evaluator.score(state["question"], texts) if on else None
        return {result: _kept(result, strips, scores, chosen)}

    async def arun(state: Mapping[str, Any]) -> Update:
        chosen = current(settings)
        on = getattr(chosen, switch)
        strips = _cut(state[source], chosen, on)
        texts = _read(strips, state[source])
        scores = await evaluator.ascore(state["question"], texts) if on else None
        return {result: _kept(result, strips, scores, chosen)}

    return Node(run, arun)


def _cut(documents: Sequence[Document], settings: CRAGSettings, on: bool) -> Cut:
    """The strips of all documents; documents as they are where the step is left out."""
    how = settings.decomposition if on else "passage"
    pairs = [(i, s) for i, d in enumerate(documents) for s in decompose(d.page_content, how)]
    return [i for i, _ in pairs], [text for _, text in pairs]


def _read(cut: Cut, documents: Sequence[Document]) -> list[str]:
    """Strips as the evaluator reads them."""
    return [titled(documents[i], text) for i, text in zip(*cut, strict=True)]


def _kept(
    event: Result, cut: Cut, scores: Sequence[float] | None, settings: CRAGSettings
) -> list[Strip]:
    """Strips with their scores; without scores all are kept, as if each were certain."""
    of, texts = cut
    given = [1.0] * len(texts) if scores is None else scores
    strips = [
        Strip(document=i, text=text, score=score, kept=scores is None)
        for i, text, score in zip(of, texts, given, strict=True)
    ]
    if scores is not None:
        strips = keep(strips, settings.strip_threshold, settings.strips)
    kept = sum(strip["kept"] for strip in strips)
    emit(StripsKept(event=event, strips=len(strips), kept=kept))
    return strips
