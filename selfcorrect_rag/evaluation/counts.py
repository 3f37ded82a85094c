"""What runs did, counted beside their accuracy; and accuracy against abstention, as a curve."""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation.rows import Outcome

_RESULT_KEYS = 8
"""Keys of the dict that Self-RAG's script writes at its end."""


class Counts(NamedTuple):
    """Numbers of outcomes. A row is one of failed, refused, empty and answered."""

    rows: int
    failed: int
    refused: int
    empty: int
    """Neither failed nor refused, and without a word."""
    answered: int
    cited: int
    """Answered with at least one citation."""
    retrieved: int
    searched: int
    """The web was searched."""
    corrected: int
    """CRAG's action was incorrect or ambiguous: knowledge was replaced or complemented."""

    def share(self, of: str) -> float | None:
        """The share of all rows, failed ones too, that are ``of`` (a field); None without rows."""
        return getattr(self, of) / self.rows if self.rows else None


class AbstentionPoint(NamedTuple):
    """A method that answers only where it is confident enough."""

    threshold: float
    """The lowest confidence at which it answers."""
    answered: float
    """Share of all rows that it answers."""
    accuracy: float
    """Mean score of these."""


def count(outcomes: Sequence[Outcome]) -> Counts:
    """Count what runs did. None is skipped: a failed run may have retrieved before."""
    return Counts(
        rows=len(outcomes),
        failed=sum(bool(o.error) for o in outcomes),
        refused=sum(o.refused and not o.error for o in outcomes),
        empty=sum(not (o.error or o.refused or o.answer.strip()) for o in outcomes),
        answered=sum(map(is_answered, outcomes)),
        cited=sum(is_answered(o) and bool(o.citations) for o in outcomes),
        retrieved=sum(o.retrieved for o in outcomes),
        searched=sum(o.searched for o in outcomes),
        corrected=sum(o.action in ("incorrect", "ambiguous") for o in outcomes),
    )


def is_answered(outcome: Outcome) -> bool:
    """Whether the run ended, with words that are no refusal."""
    return not (outcome.error or outcome.refused) and bool(outcome.answer.strip())


def official_retrieval_frequency(outcomes: Sequence[Outcome]) -> float:
    """Retrieval frequency as Self-RAG's ``run_short_form.py`` prints it.

    Trap: it divides by the 8 keys of its result, not by the number of questions, so that 16
    retrievals are a frequency of 2. The strict form is ``count(outcomes).share("retrieved")``.
    """
    return sum(o.retrieved for o in outcomes) / _RESULT_KEYS


def abstention_curve(
    outcomes: Sequence[Outcome],
    scores: Sequence[float | None],
    confidences: Sequence[float] | None = None,
) -> list[AbstentionPoint]:
    """Accuracy of the answered against the share answered, from the highest threshold down.

    Refused, failed and empty rows are never answered, but count among all rows; rows with the score
    None do not. Rows of equal confidence are answered together.

    Args:
        outcomes: of one method.
        scores: of any metric, one an outcome.
        confidences: of the method, one an outcome, such as the highest of ``grades``; without them
            the curve is one point: the method as it ran.

    Raises:
        BadArgument: the lengths differ.
    """
    sure = [0.0] * len(outcomes) if confidences is None else confidences
    if not len(outcomes) == len(scores) == len(sure):
        raise BadArgument(
            f"{len(outcomes)} outcomes, {len(scores)} scores and {len(sure)} confidences: "
            "one of each a row is wanted"
        )
    rows = [
        (confidence, score, is_answered(outcome))
        for outcome, score, confidence in zip(outcomes, scores, sure, strict=True)
        if score is not None
    ]
    answerable = sorted(((c, score) for c, score, yes in rows if yes), reverse=True)
    points: list[AbstentionPoint] = []
    answered, total = 0, 0.0
    for threshold, group in groupby(answerable, key=lambda pair: pair[0]):
        for _, score in group:
            answered, total = answered + 1, total + score
        points.append(AbstentionPoint(threshold, answered / len(rows), total / answered))
    return points
