"""From scores to an action: CRAG's two thresholds, the paper's values, and calibration."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from selfcorrect_rag.state import Action


@dataclass(frozen=True)
class Thresholds:
    """Where confidence turns, both in [-1, 1] (CRAG section 4.3).

    Raises:
        ValueError: not -1 <= lower <= upper <= 1.
    """

    upper: float
    lower: float

    def __post_init__(self) -> None:
        if not -1 <= self.lower <= self.upper <= 1:
            raise ValueError(
                f"thresholds need -1 <= lower <= upper <= 1, not {self.lower} and {self.upper}"
            )

    def action(self, scores: Sequence[float]) -> Action:
        """Correct where at least one score is above ``upper``, incorrect where all are below
        ``lower`` (as they are where there is none), otherwise ambiguous. A score on a threshold is
        neither above nor below it; where both are the same number, it is below."""
        if any(score > self.upper for score in scores):
            return "correct"
        one = self.upper == self.lower
        if all(score < self.lower or one for score in scores):
            return "incorrect"
        return "ambiguous"


PRESETS = {
    "popqa": Thresholds(0.59, -0.99),
    "pubqa": Thresholds(0.5, -0.91),
    "arc": Thresholds(0.5, -0.91),
    "bio": Thresholds(0.95, -0.91),
}
"""The paper's, by task (appendix B.2); they fit its own T5-large and no other evaluator."""


class Judged(NamedTuple):
    """A retrieval with its scores, and whether any of its documents is relevant."""

    scores: Sequence[float]
    relevant: bool


class Calibration(NamedTuple):
    """Thresholds, and what they did on the rows that they were chosen on."""

    thresholds: Thresholds
    rows: int
    accuracy: float
    """Share of retrievals judged rightly by one threshold, half-way between correct and not."""
    correct: float | None
    """Share of the retrievals called correct that are; None where none is called so."""
    incorrect: float | None
    """Share of the retrievals called incorrect that are; None where none is called so."""
    ambiguous: float
    """Share of all retrievals left ambiguous."""


def calibrate(rows: Iterable[Judged], precision: float = 0.9) -> Calibration:
    """Choose thresholds on development rows, never on those that a result is reported for.

    The single threshold that judges most retrievals rightly comes first (the action accuracy of
    section 5.5). From there ``upper`` rises and ``lower`` falls until what they call correct, and
    incorrect, is so with at least ``precision``; what lies between is ambiguous.

    Raises:
        ValueError: no rows, or rows of one kind only.
    """
    judged = [(max(row.scores, default=-1.0), row.relevant) for row in rows]
    if len({relevant for _, relevant in judged}) < 2:
        raise ValueError("calibration needs retrievals with a relevant document and some without")
    best = sorted({score for score, _ in judged})
    borders = [-1.0, *((a + b) / 2 for a, b in pairwise(best)), 1.0]

    def right(border: float) -> float:
        return sum((score > border) == relevant for score, relevant in judged) / len(judged)

    most = max(map(right, borders))
    equal = [border for border in borders if right(border) == most]
    middle = equal[len(equal) // 2]  # as far as can be from what it separates

    def above(border: float) -> float | None:
        return _share([relevant for score, relevant in judged if score > border])

    def below(border: float) -> float | None:
        return _share([not relevant for score, relevant in judged if score < border])

    upper = next((b for b in borders if b >= middle and (above(b) or 0) >= precision), 1.0)
    lower = next((b for b in borders[::-1] if b <= middle and (below(b) or 0) >= precision), -1.0)
    between = sum(lower <= score <= upper for score, _ in judged) / len(judged)
    thresholds = Thresholds(upper, lower)
    return Calibration(thresholds, len(judged), most, above(upper), below(lower), between)


def _share(called: Sequence[bool]) -> float | None:
    return sum(called) / len(called) if called else None
