"""The interface between CRAG and a model that grades what was retrieved."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from selfcorrect_rag.thresholds import PRESETS, Thresholds


class RetrievalEvaluator(ABC):
    """Says how relevant passages are to a question (CRAG section 4.2).

    A backend implements :meth:`score` and :meth:`ascore`.
    """

    thresholds: Thresholds = PRESETS["popqa"]
    """What its scores mean, unless a run's settings say otherwise; set it by
    :func:`~selfcorrect_rag.thresholds.calibrate`."""

    @abstractmethod
    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        """The relevance of each passage, in [-1, 1], in their order."""

    @abstractmethod
    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        """The async twin of :meth:`score`."""
