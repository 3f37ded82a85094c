"""Statistics against hand-computed values and another implementation."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation.statistics import bootstrap_mean, compare, compare_all


def scores(right: int, of: int = 100) -> dict[str, float | None]:
    return {str(i): float(i < right) for i in range(of)}


@pytest.mark.parametrize(
    ("won", "lost", "p"),
    [
        (0, 0, 1.0),
        (5, 0, 2 / 2**5),
        (5, 1, 2 * (1 + 6) / 2**6),
        (3, 3, 1.0),
        (10, 2, 2 * (1 + 12 + 66) / 2**12),
    ],
)
def test_mcnemar_by_hand(won: int, lost: int, p: float) -> None:
    first = scores(won, won + lost + 7)
    second = {**first, **{str(i): float(i >= won) for i in range(won + lost)}}
    for pair in ((first, second), (second, first)):
        found = compare(*pair, ("a", "b"))
        assert found
        assert found.mcnemar == pytest.approx(p)


def test_an_interval_is_that_of_another_bootstrap() -> None:
    draw = random.Random(1)
    values = [draw.random() ** 2 for _ in range(80)]
    means = sorted(sum(draw.choices(values, k=80)) / 80 for _ in range(4000))
    found = bootstrap_mean(values)
    assert found.value == pytest.approx(sum(values) / 80)
    assert (found.low, found.high) == pytest.approx((means[100], means[3899]), abs=0.01)


@given(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=2, max_size=30), st.randoms())
def test_the_order_of_scores_does_not_matter(scores: list[float], draw: random.Random) -> None:
    found = bootstrap_mean(scores, resamples=200)
    mixed = draw.sample(scores, len(scores))
    assert bootstrap_mean(mixed, resamples=200) == found
    assert min(scores) <= found.low <= found.high <= max(scores)


def test_of_one_score_nothing_is_known_and_of_equal_ones_everything() -> None:
    assert bootstrap_mean([0.5]).ends == [None, None]
    assert bootstrap_mean([0.5] * 9) == (0.5, 0.5, 0.5)
    for bad in ([], [math.nan], [math.inf, 1.0]):
        with pytest.raises(BadArgument, match="finite"):
            bootstrap_mean(bad)


def test_methods_that_differ_and_ones_that_do_not() -> None:
    pairs = compare_all({"a": scores(50), "b": scores(53), "c": scores(70)})
    found = [(p.first, p.second, p.significant) for p in pairs]
    assert found == [("a", "b", False), ("a", "c", True), ("b", "c", True)]
    ab, ac, _ = pairs
    assert (ab.difference, ab.mcnemar) == (pytest.approx(-0.03), 0.25)
    assert str(ab).startswith("no significant difference: a minus b is -0.030 (95% ")
    assert str(ac).startswith("c is better: a minus c is -0.200 (95% ")


def test_five_rows_do_not_make_a_difference_although_the_interval_excludes_zero() -> None:
    for better in (1.0, 0.7):  # with McNemar's test, and without
        first: dict[str, float | None] = {str(i): better for i in range(5)}
        (found,) = compare_all({"a": first, "b": dict.fromkeys(first, 0.0)})
        assert (found.interval[0] or 0) > 0
        assert not found.significant
        first["5"] = better
        (found,) = compare_all({"a": first, "b": dict.fromkeys(first, 0.0)})
        assert found.significant


def test_only_questions_with_both_scores_count() -> None:
    first: dict[str, float | None] = {"a": 1.0, "b": None, "c": 0.0}
    found = compare(first, {"a": 0.0, "b": 1.0, "d": 1.0}, ("x", "y"))
    assert found
    assert (found.questions, found.difference) == (1, 1.0)
    assert compare_all({"x": {"a": 1.0, "c": None}, "y": {"b": 1.0, "c": 1.0}}) == []
    assert compare_all({"x": first, "y": first}, [("x", "z")]) == []
