"""The reader as CRAG's retrieval evaluator."""

from collections.abc import Sequence

from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, with_blanks
from selfcorrect_rag.reader.reader import Passage, PassageReading, Reader
from selfcorrect_rag.state.sources import LONGEST_TITLE
from selfcorrect_rag.thresholds import Thresholds

SEPARATOR = " // "
"""Between the title and the text of a passage, as evaluators get it."""


class ReaderEvaluator(RetrievalEvaluator):
    """Grades by the probability that a passage answers the question, from -1 to 1."""

    is_independent = True

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.thresholds = Thresholds(*reader.calibration.thresholds)

    @property
    def reader(self) -> Reader:
        """What reads."""
        return self._reader

    @property
    def identity(self) -> str:
        return f"reader evaluator {self._reader.identity}"

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        return with_blanks(passages, map(_score, self._reader.read(_asked(question, passages))))

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        readings = await self._reader.aread(_asked(question, passages))
        return with_blanks(passages, map(_score, readings))


def _asked(question: str, passages: Sequence[str]) -> list[tuple[str, Passage]]:
    return [(question, _passage(text)) for text in passages if text.strip()]


def _passage(text: str) -> Passage:
    title, found, rest = text.partition(SEPARATOR)
    is_titled = found and len(title) <= LONGEST_TITLE and "\n" not in title
    return Passage(title, rest) if is_titled else Passage("", text)


def _score(reading: PassageReading) -> float:
    return 2 * reading.relevant - 1
