"""Whether a score can be read as a probability: reliability curves and their expected error."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from selfcorrect_rag.errors import require
from selfcorrect_rag.evaluation.pooled import Pair, resampled, share
from selfcorrect_rag.evaluation.statistics import Interval

BINS, LEAST = 10, 10
"""Most bins of a curve, and the fewest items of each where there is more than one."""


class Bin(NamedTuple):
    """Items of about one score."""

    score: float
    """Their mean."""
    share: Interval
    """Of positive ones among them."""
    items: int


class Reliability(NamedTuple):
    """The curve of a score, and how far it is from the diagonal."""

    bins: tuple[Bin, ...]
    """From the lowest scores to the highest."""
    error: Interval
    """The expected calibration error: the mean over items of the distance between a bin's mean
    score and its share of positives (Naeini et al., 2015), in [0, 1]. It is never negative, so
    chance raises it, and its resamples more so: of a calibrated score the interval is too high."""
    questions: int
    items: int


def reliability(questions: Sequence[Sequence[Pair]]) -> Reliability | None:
    """The curve in bins of as many items each (Nguyen and O'Connor, 2015); equal scores share one.

    Args:
        questions: scores of each in [0, 1], with labels that are 0 or 1.

    Returns:
        None where there is no item.

    Raises:
        MissingExtra: numpy is not installed.
    """
    numpy = require("numpy", "evaluation")
    used = [items for items in questions if items]
    pairs = sorted((score, label, q) for q, items in enumerate(used) for score, label in items)
    if not pairs:
        return None
    bins = _bins(pairs)
    gaps = numpy.zeros((len(used), len(bins)))
    curve = []
    for place, members in enumerate(bins):
        of: dict[int, list[float]] = {}
        for score, label, question in members:
            gaps[question, place] += score - label
            of.setdefault(question, []).append(label)
        positive = share(list(of.values()))
        assert positive is not None  # a bin has an item
        curve.append(Bin(sum(m[0] for m in members) / len(members), positive, len(members)))
    sizes = numpy.array([len(items) for items in used], dtype=float)

    def error(times: Any) -> Any:
        return numpy.abs(times @ gaps).sum(axis=1) / (times @ sizes)

    return Reliability(tuple(curve), resampled(len(used), error), len(used), len(pairs))


def _bins(
    ordered: Sequence[tuple[float, float, int]],
) -> list[Sequence[tuple[float, float, int]]]:
    """The items in bins, a cut moved up to where the score changes."""
    count = max(1, min(BINS, len(ordered) // LEAST))
    cuts = [0]
    for number in range(1, count):
        cut = max(cuts[-1], number * len(ordered) // count)
        while 0 < cut < len(ordered) and ordered[cut][0] == ordered[cut - 1][0]:
            cut += 1
        cuts.append(cut)
    ends = [*cuts[1:], len(ordered)]
    return [ordered[a:b] for a, b in zip(cuts, ends, strict=True) if a < b]
