"""Intervals and tests: against other ways to get them, and on what is known to be equal."""

import math
import random
import tracemalloc
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation.statistics import (
    Interval,
    bootstrap_difference,
    bootstrap_mean,
    compare,
    compare_all,
    mcnemar,
)

SCORES = st.lists(st.sampled_from((0.0, 0.25, 0.5, 1.0)), min_size=2, max_size=60)


def by_drawing(scores: list[float], resamples: int) -> tuple[float, float]:
    """The percentile bootstrap as it is written down: rows drawn with replacement."""
    draw = random.Random(3)
    means = sorted(sum(draw.choices(scores, k=len(scores))) / len(scores) for _ in range(resamples))
    return means[int(0.025 * resamples)], means[int(0.975 * resamples)]


@pytest.mark.parametrize("kind", ["right or wrong", "shares"])
def test_parity_of_the_interval_with_rows_that_are_drawn(kind: str) -> None:
    draw = random.Random(4)
    rows = [
        float(draw.random() < 0.3) if kind == "right or wrong" else draw.random()
        for _ in range(200)
    ]
    found = bootstrap_mean(rows)
    low, high = by_drawing(rows, 4000)
    assert found.value == pytest.approx(sum(rows) / 200)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.006)
    assert 0.03 < found.high - found.low < 0.15


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    draw = random.Random(5)
    held = 0
    for _ in range(300):
        rows = [float(draw.random() < 0.4) for _ in range(100)]
        found = bootstrap_mean(rows, resamples=500)
        held += found.low <= 0.4 <= found.high
    assert 0.9 <= held / 300 <= 0.985


@given(SCORES, st.randoms())
def test_equal_scores_in_any_order_give_equal_intervals(
    scores: list[float], order: random.Random
) -> None:
    found = bootstrap_mean(scores, resamples=200)
    assert min(scores) <= found.low <= found.high <= max(scores)
    mixed = scores.copy()
    order.shuffle(mixed)
    assert bootstrap_mean(mixed, resamples=200) == found


def test_the_seed_decides() -> None:
    rows = [random.Random(6).random() for _ in range(50)] + [0.0]
    rows = [row * i for i, row in enumerate(rows)]
    assert bootstrap_mean(rows, seed=1) == bootstrap_mean(rows, seed=1)
    assert bootstrap_mean(rows, seed=1) != bootstrap_mean(rows, seed=2)


def test_a_higher_level_is_a_wider_interval() -> None:
    rows = [0.0, 1.0] * 30
    wide, narrow = bootstrap_mean(rows, level=0.99), bootstrap_mean(rows, level=0.8)
    assert wide.low < narrow.low < 0.5 < narrow.high < wide.high


def test_a_paired_difference_is_narrower_than_that_of_its_parts() -> None:
    draw = random.Random(7)
    hard = [draw.random() for _ in range(300)]
    first = [min(1.0, each + 0.02 * draw.random()) for each in hard]
    paired = bootstrap_difference(first, hard)
    alone = bootstrap_mean(first)
    assert not paired.includes_zero
    assert paired.high - paired.low < (alone.high - alone.low) / 10
    assert paired.value == pytest.approx(sum(first) / 300 - sum(hard) / 300)


def test_memory_is_bounded() -> None:
    """A matrix of all draws would take 10,000 x 12,000 x 8 bytes, near a gigabyte."""
    rows = [i / 12_000 for i in range(12_000)]
    bootstrap_mean([0.0, 1.0], resamples=10)  # imports numpy
    tracemalloc.start()
    bootstrap_mean(rows, resamples=300)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24e6  # of the 300 draws, 83 at a time


def test_of_one_score_nothing_is_known() -> None:
    assert bootstrap_mean([1.0]) == (1.0, -math.inf, math.inf, 0.95)
    assert bootstrap_difference([1.0], [0.0]).includes_zero


def test_what_cancels_is_zero() -> None:
    found = bootstrap_difference([0.1 + 0.2] * 40, [0.3] * 40)
    assert 0 < found.value < 1e-15
    assert found.includes_zero


@pytest.mark.parametrize(
    "call",
    [
        lambda: bootstrap_mean([]),
        lambda: bootstrap_mean([math.nan, 1.0]),
        lambda: bootstrap_mean([0.0, 1.0], level=1.0),
        lambda: bootstrap_mean([0.0, 1.0], resamples=0),
        lambda: bootstrap_difference([0.0], [0.0, 1.0]),
        lambda: mcnemar([0.0, 0.5], [1.0, 1.0]),
        lambda: mcnemar([0.0], [1.0, 1.0]),
        lambda: compare({"1": 1.0}, {"2": 1.0}),
        lambda: compare({"1": 1.0}, {"1": None}),
    ],
)
def test_bad_scores_are_refused(call: object) -> None:
    with pytest.raises(BadArgument):
        call()  # type: ignore[operator]


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=120))
def test_parity_of_mcnemar_with_the_binomial_test(rows: list[tuple[bool, bool]]) -> None:
    """The two-sided p-value: the chance of all outcomes that are no likelier than this one."""
    first, second = ([float(row[side]) for row in rows] for side in (0, 1))
    wins = sum(a and not b for a, b in rows)
    losses = sum(b and not a for a, b in rows)
    ways = [math.comb(wins + losses, k) for k in range(wins + losses + 1)]
    expected = sum(each for each in ways if each <= ways[wins]) / sum(ways)
    assert mcnemar(first, second) == pytest.approx(expected)
    assert mcnemar(second, first) == mcnemar(first, second)


def test_mcnemar_of_few_rows_is_that_of_all_their_signs() -> None:
    """Six unequal rows, one on the rarer side: 14 of 64 ways are as uneven."""
    ways = [sum(signs) for signs in product((0, 1), repeat=6)]
    uneven = sum(min(won, 6 - won) <= 1 for won in ways)
    first, second = [1.0] * 5 + [0.0] + [1.0] * 4, [0.0] * 5 + [1.0] + [1.0] * 4
    assert mcnemar(first, second) == uneven / 64
    many = [1.0] * 6000 + [0.0] * 5000
    assert 0 < mcnemar(many, [1 - each for each in many]) < 1e-15


def scored(values: list[float]) -> dict[str, float | None]:
    return {str(i): value for i, value in enumerate(values)}


def test_equal_variants_cannot_be_told_apart() -> None:
    draw = random.Random(8)
    first = [float(draw.random() < 0.5) for _ in range(200)]
    second = [float(draw.random() < 0.5) for _ in range(200)]
    found = compare(scored(first), scored(second), ("crag", "rag"))
    assert found.difference.includes_zero
    assert not found.told_apart
    assert str(found).startswith("crag and rag cannot be told apart: ")
    assert f"interval {found.difference.low:.3f} to {found.difference.high:.3f}" in str(found)


def test_a_difference_is_printed_with_its_interval() -> None:
    found = compare(scored([0.0] * 30 + [1.0] * 20), scored([1.0] * 50), ("rag", "crag"))
    assert found.told_apart
    assert found.mcnemar == 2 / 2**30
    said = str(found)
    assert said.startswith("crag is better than rag: rag less crag is -0.600 (95% interval -0.7")
    assert said.endswith("McNemar's p 1.86e-09, 50 rows")


@pytest.mark.parametrize("scale", [1.0, 0.5])
@pytest.mark.parametrize(("rows", "told"), [(1, False), (5, False), (6, True)])
def test_a_few_rows_that_agree_prove_nothing(rows: int, told: bool, scale: float) -> None:
    found = compare(scored([scale] * rows), scored([0.0] * rows))
    assert (found.mcnemar is None) == (scale == 0.5)
    assert found.told_apart == told


def test_a_few_of_many_rows_prove_nothing_either() -> None:
    """The interval of five differences in a thousand excludes zero; the exact test does not."""
    found = compare(scored([1.0] * 5 + [0.0] * 995), scored([0.0] * 1000))
    assert not found.difference.includes_zero
    assert found.mcnemar == 2 / 32
    assert not found.told_apart


def test_a_few_shares_of_many_prove_nothing_either() -> None:
    """There is no McNemar's test of shares: five unequal rows are too few, of however many."""
    found = compare(scored([0.5] * 5 + [0.0] * 995), scored([0.0] * 1000))
    assert not found.difference.includes_zero
    assert found.least_p == 2 / 32
    assert not found.told_apart


def test_shares_on_both_sides_of_zero_prove_nothing() -> None:
    """Rows enough are unequal, and as many favour one variant as the other."""
    found = compare(scored([0.5, 0.0] * 20), scored([0.0, 0.5] * 20))
    assert found.least_p < 0.05
    assert found.difference.includes_zero
    assert not found.told_apart


def test_rows_that_one_lacks_are_left_out_and_counted() -> None:
    first = {"1": 1.0, "2": 0.0, "3": None, "4": 1.0}
    second = {"4": 0.5, "1": 0.0, "3": 1.0, "2": None, "9": None}
    found = compare(first, second)
    assert (found.rows, found.left_out) == (2, 2)
    assert found.difference.value == 0.75
    assert found.mcnemar is None


def test_every_pair_is_compared() -> None:
    variants = {name: scored([value] * 9) for name, value in (("a", 1.0), ("b", 0.0), ("c", 1.0))}
    found = compare_all(variants)
    assert [(each.first, each.second, each.told_apart) for each in found] == [
        ("a", "b", True),
        ("a", "c", False),
        ("b", "c", True),
    ]


def test_an_interval_says_its_level() -> None:
    assert str(Interval(0.5, 0.25, 0.75, 0.9)) == "0.500 (90% interval 0.250 to 0.750)"
    assert Interval(0.5, 0.0, 1.0, 0.9).includes_zero
