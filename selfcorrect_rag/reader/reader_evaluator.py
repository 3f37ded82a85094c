"""The reader as CRAG's retrieval evaluator."""

from collections.abc import Sequence

from selfcorrect_rag.intake import MAX_TITLE
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, with_blanks
from selfcorrect_rag.reader.reader import Passage, Reader
from selfcorrect_rag.thresholds import Thresholds

SEPARATOR = " // "
"""Between the title and the text of a passage, as evaluators get it."""


class ReaderEvaluator(RetrievalEvaluator):
    """Grades by the probability that a passage answers the question, from -1 to 1."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.thresholds = Thresholds(*reader.calibration.thresholds)

    @property
    def identity(self) -> str:
        return f"reader evaluator {self.reader.identity}"

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        readings = self.reader.read(_pair(question, passages))
        return with_blanks(passages, (2 * reading.relevant - 1 for reading in readings))


def _pair(question: str, passages: Sequence[str]) -> list[tuple[str, Passage]]:
    """Pair the question with each passage that is not blank, split into title and text."""
    pairs = []
    for text in filter(str.strip, passages):
        title, found, rest = text.partition(SEPARATOR)
        is_titled = found and len(title) <= MAX_TITLE and "\n" not in title
        pairs.append((question, Passage(title, rest) if is_titled else Passage("", text)))
    return pairs
