"""refine_strips and select_web_strips: what counts of retrieved documents and of web pages."""

from collections.abc import Sequence

from langchain_core.documents import Document

from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator
from selfcorrect_rag.nodes.base import Node, Update, current, emit
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import CRAGState, Strip
from selfcorrect_rag.strips import decompose, keep

Cut = tuple[list[int], list[str]]
"""Strips: the document that each is from, and its text."""


def refine_strips(evaluator: RetrievalEvaluator, settings: CRAGSettings) -> Node[CRAGState]:
    """Decompose the retrieved documents and keep the strips that count (section 4.4)."""

    def run(state: CRAGState) -> Update:
        chosen = current(settings)
        strips = _cut(state["passages"], chosen, chosen.refine)
        scores = evaluator.score(state["question"], strips[1]) if chosen.refine else None
        return {"strips": _kept("refined", strips, scores, chosen)}

    async def arun(state: CRAGState) -> Update:
        chosen = current(settings)
        strips = _cut(state["passages"], chosen, chosen.refine)
        scores = await evaluator.ascore(state["question"], strips[1]) if chosen.refine else None
        return {"strips": _kept("refined", strips, scores, chosen)}

    return Node(run, arun)


def select_web_strips(evaluator: RetrievalEvaluator, settings: CRAGSettings) -> Node[CRAGState]:
    """The same for what the web gave (section 4.5)."""

    def run(state: CRAGState) -> Update:
        chosen = current(settings)
        strips = _cut(state["web_results"], chosen, chosen.select)
        scores = evaluator.score(state["question"], strips[1]) if chosen.select else None
        return {"web_strips": _kept("selected", strips, scores, chosen)}

    async def arun(state: CRAGState) -> Update:
        chosen = current(settings)
        strips = _cut(state["web_results"], chosen, chosen.select)
        scores = await evaluator.ascore(state["question"], strips[1]) if chosen.select else None
        return {"web_strips": _kept("selected", strips, scores, chosen)}

    return Node(run, arun)


def _cut(documents: Sequence[Document], settings: CRAGSettings, on: bool) -> Cut:
    """The strips of all documents; documents as they are where the step is left out."""
    how = settings.decomposition if on else "passage"
    pairs = [(i, s) for i, d in enumerate(documents) for s in decompose(d.page_content, how)]
    return [i for i, _ in pairs], [text for _, text in pairs]


def _kept(
    event: str, cut: Cut, scores: Sequence[float] | None, settings: CRAGSettings
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
    emit(event, strips=len(strips), kept=sum(strip["kept"] for strip in strips))
    return strips
