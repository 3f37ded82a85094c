"""The interface between CRAG and a model that grades what was retrieved."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from langchain_core.documents import Document

from selfcorrect_rag.thresholds import PRESETS, Thresholds

IRRELEVANT, RELEVANT = -1.0, 1.0
"""The labels of a passage in the evaluator's training, and the ends of its scale."""


class RetrievalEvaluator(ABC):
    """Says how relevant passages are to a question (CRAG section 4.2).

    A backend implements :meth:`score`, and :meth:`ascore` where it can do better than a thread.
    """

    thresholds: Thresholds = PRESETS["popqa"]
    """From its scores to an action, where a run's settings do not say;
    :func:`~selfcorrect_rag.thresholds.calibrate` finds an evaluator's own."""

    @property
    def notes(self) -> list[str]:
        """What a reader of its scores should know."""
        return []

    @abstractmethod
    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """The relevance of each passage to the question.

        Args:
            question: the question alone, without a task's instruction.
            passages: documents or strips, any number of them; a blank one scores -1.

        Returns:
            One score in [-1, 1] for each passage, in their order.
        """

    def model_calls(self, passages: Sequence[str]) -> int:
        """Model calls that scoring them takes: none for blank ones, 1 where they are one batch."""
        return int(any(passage.strip() for passage in passages))

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        """The async twin of :meth:`score`."""
        return await asyncio.to_thread(self.score, question, passages)


def titled(document: Document, text: str | None = None) -> str:
    """A document, or a strip of it, as an evaluator reads it: ``title // text`` (official code).

    A title says whose "he" a strip is about. One that the text begins with is not said twice.
    """
    title = " ".join(str(document.metadata.get("title") or "").split())
    text = document.page_content if text is None else text
    if not title or not text.strip() or text.lstrip().lower().startswith(title.lower()):
        return text
    return f"{title} // {text}"


def with_blanks(passages: Sequence[str], scores: Iterable[float]) -> list[float]:
    """Scores of all passages from those of the passages that are not blank.

    A blank passage is irrelevant without asking a model, as in the official code.
    """
    given = iter(scores)
    return [next(given) if passage.strip() else IRRELEVANT for passage in passages]
