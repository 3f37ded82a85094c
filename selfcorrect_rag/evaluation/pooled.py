"""Statistics over the items of many questions: a share, or an AUC, with its interval.

A question has several documents, strips or segments, which are alike. So the bootstrap draws
questions with all their items (the cluster bootstrap of Davison and Hinkley, 1997, section 3.8);
one that drew single items would be too sure of itself.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from selfcorrect_rag.errors import require
from selfcorrect_rag.evaluation.statistics import Interval

Pair = tuple[float, float]
"""A score, and its label: above 0 is positive."""
RESAMPLES = 2_000
_DRAWN = 1_000_000
"""Numbers held at once, which bounds the memory."""


def share(questions: Sequence[Sequence[float]]) -> Interval | None:
    """The mean over all items of all questions; None where there is no item.

    Where all items are equal the interval has no width: a bootstrap knows nothing else.

    Args:
        questions: the items of each, 0 to 1 where the mean is a share.

    Raises:
        MissingExtra: numpy is not installed.
    """
    numpy = require("numpy", "evaluation")
    used = [items for items in questions if items]
    sums = numpy.array([[math.fsum(items), len(items)] for items in used], dtype=float)

    def mean(times: Any) -> Any:
        total, items = (times @ sums).T
        return total / items

    return resampled(len(used), mean) if used else None


def pooled_auc(questions: Sequence[Sequence[Pair]]) -> Interval | None:
    """The AUC over all items of all questions; None where all labels are of one kind.

    Raises:
        MissingExtra: numpy is not installed.
    """
    used = [items for items in questions if items]
    labels = {label > 0 for items in used for _, label in items}
    size = sum(map(len, used))
    return resampled(len(used), _auc(used), size) if len(labels) == 2 else None


def auc(scored: Sequence[Pair]) -> float:
    """How often a positive item scores above a negative one; ties count half.

    NaN where all labels are of one kind.
    """
    numpy = require("numpy", "evaluation")
    return float(_auc([scored])(numpy.ones((1, 1)))[0])


def _auc(questions: Sequence[Sequence[Pair]]) -> Callable[[Any], Any]:
    """The AUC by how often each question is drawn."""
    numpy = require("numpy", "evaluation")
    items = sorted(
        (score, label > 0, number)
        for number, scored in enumerate(questions)
        for score, label in scored
    )
    scores, positive, of = (numpy.array(column) for column in zip(*items, strict=True))
    first = numpy.flatnonzero(numpy.r_[True, scores[1:] != scores[:-1]])

    def statistic(times: Any) -> Any:
        drawn = times[:, of]
        won, lost = (
            numpy.add.reduceat(drawn * of_kind, first, axis=1) for of_kind in (positive, ~positive)
        )
        below = numpy.cumsum(lost, axis=1) - lost / 2  # ties count half
        with numpy.errstate(invalid="ignore"):  # a draw without one kind is NaN
            return (won * below).sum(axis=1) / (won.sum(axis=1) * lost.sum(axis=1))

    return statistic


def resampled(
    questions: int, statistic: Callable[[Any], Any], size: int = 0, level: float = 0.95
) -> Interval:
    """A statistic with its percentile bootstrap interval over questions.

    Of one question nothing is known: its interval is infinite. Draws without a value are left out.

    Args:
        questions: how many, at least 1.
        statistic: takes how often each question is drawn, an array of draws by questions, and
            gives one number a draw, or NaN.
        size: numbers that it holds for one draw, where these are more than the questions.
        level: of the interval.

    Raises:
        MissingExtra: numpy is not installed.
    """
    numpy = require("numpy", "evaluation")
    value = float(statistic(numpy.ones((1, questions)))[0])
    if questions == 1:
        return Interval(value, -math.inf, math.inf, level)
    draw = numpy.random.Generator(numpy.random.PCG64(0)).multinomial
    batch = max(1, _DRAWN // max(size, questions))
    shares = numpy.full(questions, 1 / questions)
    drawn = [
        statistic(draw(questions, shares, size=min(batch, RESAMPLES - start)))
        for start in range(0, RESAMPLES, batch)
    ]
    tail = (1 - level) / 2
    low, high = numpy.nanquantile(numpy.concatenate(drawn), [tail, 1 - tail])
    return Interval(value, round(float(low), 12), round(float(high), 12), level)
