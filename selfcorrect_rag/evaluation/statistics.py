"""Whether methods differ: paired bootstrap intervals and McNemar's exact test.

Methods are compared on the same questions, so a question that is hard for all says nothing.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from selfcorrect_rag.errors import BadArgument, require

RESAMPLES = 10_000
_DRAWN = 1_000_000
"""Numbers drawn at once, which bounds the memory."""


class Interval(NamedTuple):
    """A mean, and where it would lie on other questions of the same kind."""

    value: float
    low: float
    high: float
    level: float
    """How often such intervals hold the true value."""

    @property
    def includes_zero(self) -> bool:
        return self.low <= 0 <= self.high

    @property
    def ends(self) -> list[float | None]:
        """Low and high; None where nothing bounds it, which JSON has no number for."""
        return [end if math.isfinite(end) else None for end in (self.low, self.high)]

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.level:.0%} interval {self.low:.3f} to {self.high:.3f})"


class Comparison(NamedTuple):
    """Two variants on the questions that both have scores of."""

    first: str
    second: str
    difference: Interval
    """The mean score of the first less that of the second."""
    mcnemar: float | None
    """The p-value where all scores are 0 or 1."""
    least_p: float
    """The smallest p-value that so many unequal rows could give in a sign test."""
    rows: int
    left_out: int
    """Questions that only one of them has a score of."""

    @property
    def told_apart(self) -> bool:
        """Whether the interval excludes zero, and the exact test (where there is one) agrees.

        A bootstrap of a few rows is too sure of itself: five rows that all favour one variant
        exclude zero, and happen by chance once in 16 times. So the least p-value counts too.
        """
        p = self.least_p if self.mcnemar is None else self.mcnemar
        return not self.difference.includes_zero and p <= 1 - self.difference.level

    def __str__(self) -> str:
        p = "" if self.mcnemar is None else f", McNemar's p {self.mcnemar:.3g}"
        said = f"{self.difference}{p}, {self.rows} rows"
        if not self.told_apart:
            return f"{self.first} and {self.second} cannot be told apart: {said}"
        better = self.first if self.difference.value > 0 else self.second
        worse = self.second if better == self.first else self.first
        return f"{better} is better than {worse}: {self.first} less {self.second} is {said}"


def bootstrap_mean(
    scores: Sequence[float], *, level: float = 0.95, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """The mean of scores with its percentile bootstrap interval (Efron and Tibshirani, 1993).

    Equal scores with equal arguments, in any order, give equal intervals. Of a single score nothing
    is known: its interval is infinite. Memory is bounded, whatever the number of resamples.

    Raises:
        BadArgument: no scores, or some that are not finite; a level outside of 0 to 1.
        MissingExtra: numpy is not installed.
    """
    if not scores or not all(map(math.isfinite, scores)):
        raise BadArgument("a mean is of one finite score or more")
    if not 0 < level < 1 or resamples < 1:
        raise BadArgument("a level is between 0 and 1, and resamples are one or more")
    value = math.fsum(scores) / len(scores)
    if len(scores) == 1:
        return Interval(value, -math.inf, math.inf, level)
    # How often each distinct score is drawn says all of a resample, and few scores are distinct.
    numpy = require("numpy", "evaluation")
    counts = sorted(Counter(scores).items())
    distinct = numpy.array([score for score, _ in counts], dtype=float)
    shares = numpy.array([times / len(scores) for _, times in counts])
    draw = numpy.random.Generator(numpy.random.PCG64(seed)).multinomial
    batch = max(1, _DRAWN // len(counts))
    means = numpy.concatenate(
        [
            draw(len(scores), shares, size=min(batch, resamples - start)) @ distinct
            for start in range(0, resamples, batch)
        ]
    )
    tail = (1 - level) / 2
    low, high = numpy.quantile(means / len(scores), [tail, 1 - tail])
    # Binary fractions that cancel leave some 1e-17, which would exclude zero.
    return Interval(value, round(float(low), 12), round(float(high), 12), level)


def bootstrap_difference(
    first: Sequence[float],
    second: Sequence[float],
    *,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """The mean of paired differences, first less second, with its bootstrap interval.

    Args:
        first: scores of one method.
        second: scores of the other on the same questions, in the same order.
        level: of the interval.
        seed: of the resampling.
        resamples: how many.

    Raises:
        BadArgument: the lengths differ, or as :func:`bootstrap_mean`.
    """
    differences = _differences(first, second)
    return bootstrap_mean(differences, level=level, seed=seed, resamples=resamples)


def mcnemar(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p-value of McNemar's exact test (McNemar, 1947).

    Of the questions that one method alone gets right, as few for the rarer side, or fewer, would
    be so by chance with this probability. Without any, 1.

    Args:
        first: 1 where the method is right, 0 where it is wrong.
        second: of the other method, on the same questions.

    Raises:
        BadArgument: the lengths differ, or a score is neither 0 nor 1.
    """
    if not _are_binary((*first, *second)):
        raise BadArgument("McNemar's test is of scores that are 0 or 1")
    won = Counter(_differences(first, second))
    return _sign_test(min(won[1], won[-1]), won[1] + won[-1])


def compare(
    first: Mapping[str, float | None],
    second: Mapping[str, float | None],
    names: tuple[str, str] = ("first", "second"),
    *,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Compare two variants on the questions that both have scores of.

    Args:
        first: scores by the question's id; None where it has none.
        second: of the other variant.
        names: of the two variants.
        level: of the interval; its rest is the level of the test.
        seed: of the resampling.
        resamples: how many.

    Raises:
        BadArgument: no question has two scores.
    """
    one = {key: score for key, score in first.items() if score is not None}
    other = {key: score for key, score in second.items() if score is not None}
    paired = [(score, other[key]) for key, score in one.items() if key in other]
    if not paired:
        raise BadArgument(f"{names[0]} and {names[1]} have no scored question in common")
    left, right = ([pair[side] for pair in paired] for side in (0, 1))
    unequal = sum(a != b for a, b in paired)
    return Comparison(
        *names,
        bootstrap_difference(left, right, level=level, seed=seed, resamples=resamples),
        mcnemar(left, right) if _are_binary((*left, *right)) else None,
        _sign_test(0, unequal),
        len(paired),
        len(one.keys() ^ other.keys()),
    )


def compare_all(
    scores: Mapping[str, Mapping[str, float | None]],
    *,
    level: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> list[Comparison]:
    """Compare every pair of variants, in their order.

    The level is that of each comparison: of twenty pairs that do not differ, one is told apart at
    95 % by chance.

    Args:
        scores: by the variant's name and the question's id.
        level: as in :func:`compare`, and so the others.
        seed: of the resampling.
        resamples: how many.
    """
    return [
        compare(
            scores[one], scores[other], (one, other), level=level, seed=seed, resamples=resamples
        )
        for one, other in combinations(scores, 2)
    ]


def _differences(first: Sequence[float], second: Sequence[float]) -> list[float]:
    if len(first) != len(second):
        raise BadArgument(f"{len(first)} and {len(second)} scores cannot be paired")
    return [a - b for a, b in zip(first, second, strict=True)]


def _are_binary(scores: Sequence[float]) -> bool:
    return all(score in (0, 1) for score in scores)


def _sign_test(rarer: int, unequal: int) -> float:
    """The two-sided p-value of so few on the rarer side, of as many unequal rows."""
    ways, of_these = 0, 1
    for k in range(rarer + 1):
        ways += of_these
        of_these = of_these * (unequal - k) // (k + 1)
    return min(1.0, 2 * ways / (1 << unequal))
