"""Whether methods differ: paired bootstrap intervals and McNemar's exact test, by scipy."""

import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from selfcorrect_rag.errors import BadArgument, require

LEVEL, RESAMPLES = 0.95, 10_000
ByQuestion = Mapping[str, float | None]
"""Scores by the question's id; None if it has none."""


class Interval(NamedTuple):
    """A mean with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def ends(self) -> list[float | None]:
        """Low and high; None instead of infinity, which JSON does not have."""
        return [end if math.isfinite(end) else None for end in (self.low, self.high)]


class Comparison(NamedTuple):
    """Two methods on the questions that both have scores for."""

    first: str
    second: str
    difference: float
    """The mean score of the first minus that of the second."""
    interval: list[float | None]
    mcnemar: float | None
    """The p-value if all scores are 0 or 1."""
    questions: int
    significant: bool
    """Whether the interval excludes zero and an exact test agrees."""

    @property
    def verdict(self) -> str:
        """The result in words."""
        better = self.first if self.difference > 0 else self.second
        return f"{better} is better" if self.significant else "no significant difference"

    def __str__(self) -> str:
        low, high = ("unknown" if end is None else f"{end:.3f}" for end in self.interval)
        p = "" if self.mcnemar is None else f", McNemar's p {self.mcnemar:.3g}"
        difference = f"{self.first} minus {self.second} is {self.difference:.3f}"
        return f"{self.verdict}: {difference} (95% {low} to {high}){p}, {self.questions} rows"


def bootstrap_mean(scores: Sequence[float], *, resamples: int = RESAMPLES) -> Interval:
    """The mean with its percentile bootstrap interval (Efron and Tibshirani, 1993).

    Equal scores in any order give equal intervals. Of one score the interval is infinite.
    """
    if not scores or not all(map(math.isfinite, scores)):
        raise BadArgument("scores must be one or more finite numbers")
    value = math.fsum(scores) / len(scores)
    if len(scores) == 1:
        return Interval(value, -math.inf, math.inf)
    stats, numpy = require("scipy.stats", "eval"), require("numpy", "eval")
    with warnings.catch_warnings(action="ignore"):  # of equal scores, whose interval has no width
        low, high = stats.bootstrap(
            (sorted(scores),),
            numpy.mean,
            n_resamples=resamples,
            batch=max(1, 2_000_000 // len(scores)),  # bounds the memory
            confidence_level=LEVEL,
            method="percentile",
            rng=0,
        ).confidence_interval
    # Binary fractions that cancel leave some 1e-17, which would exclude zero.
    return Interval(value, round(float(low), 12), round(float(high), 12))


def compare(first: ByQuestion, second: ByQuestion, names: tuple[str, str]) -> Comparison | None:
    """Compare two methods on the questions that both have scores for; None if there are none.

    McNemar's exact test (McNemar, 1947) is two-sided, of scores 0 and 1. A bootstrap of few unequal
    rows is too sure of itself: five that all favour one method happen by chance once in 16 times.
    So for other scores the least p-value of a sign test counts.
    """
    other = {key: score for key, score in second.items() if score is not None}
    both = [(a, other[key]) for key, a in first.items() if a is not None and key in other]
    if not both:
        return None
    found = bootstrap_mean([a - b for a, b in both])
    is_binary = all(score in (0, 1) for pair in both for score in pair)
    won = sum(a > b for a, b in both) if is_binary else 0
    unequal = sum(a != b for a, b in both)
    test = require("scipy.stats", "eval").binomtest
    p = float(test(won, unequal).pvalue) if unequal else 1.0
    significant = p <= 1 - LEVEL and not found.low <= 0 <= found.high
    exact = p if is_binary else None
    return Comparison(*names, found.value, found.ends, exact, len(both), significant)


def compare_all(
    scores: Mapping[str, ByQuestion], pairs: Sequence[tuple[str, str]] | None = None
) -> list[Comparison]:
    """Compare pairs of methods, by default all, that share a scored question.

    Each stands alone: of twenty pairs that do not differ, one seems to by chance.
    """
    wanted = list(combinations(scores, 2)) if pairs is None else pairs
    found = [compare(scores.get(a, {}), scores.get(b, {}), (a, b)) for a, b in wanted]
    return [comparison for comparison in found if comparison]
