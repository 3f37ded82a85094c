"""From scores to actions, and thresholds from labelled rows."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.thresholds import PRESETS, Judged, Thresholds, calibrate

SCORES = st.lists(st.floats(-1, 1), max_size=10)
RANK = {"incorrect": 0, "ambiguous": 1, "correct": 2}
POPQA = PRESETS["popqa"]


@pytest.mark.parametrize(
    ("scores", "action"),
    [
        ([0.6, -1], "correct"),
        ([0.59, -1], "ambiguous"),
        ([-0.99], "ambiguous"),
        ([-1, -0.995], "incorrect"),
        ([-1, 0.0], "ambiguous"),
        ([], "incorrect"),
    ],
)
def test_actions_of_the_paper(scores: list[float], action: str) -> None:
    assert POPQA.action(scores) == action


def test_presets_are_the_papers() -> None:
    assert {name: (t.upper, t.lower) for name, t in PRESETS.items()} == {
        "popqa": (0.59, -0.99),
        "pubqa": (0.5, -0.91),
        "arc": (0.5, -0.91),
        "bio": (0.95, -0.91),
    }


@given(SCORES)
def test_one_threshold_leaves_nothing_ambiguous(scores: list[float]) -> None:
    assert Thresholds(0.2, 0.2).action(scores) != "ambiguous"


@given(SCORES)
def test_order_does_not_matter(scores: list[float]) -> None:
    assert POPQA.action(scores) == POPQA.action(scores[::-1])


@given(SCORES.filter(bool), st.integers(0, 9), st.floats(0, 2))
def test_a_higher_score_never_leads_away_from_correct(
    scores: list[float], i: int, more: float
) -> None:
    raised = list(scores)
    raised[i % len(scores)] = min(1.0, raised[i % len(scores)] + more)
    assert RANK[POPQA.action(raised)] >= RANK[POPQA.action(scores)]


@pytest.mark.parametrize(("upper", "lower"), [(-0.5, 0.5), (1.5, 0), (0, -2), (math.nan, 0)])
def test_thresholds_that_make_no_sense(upper: float, lower: float) -> None:
    with pytest.raises(ValueError, match="lower <= upper"):
        Thresholds(upper, lower)


def test_calibration_separates_what_can_be_separated() -> None:
    rows = [Judged([0.8, -0.2], True), Judged([0.6], True), Judged([-0.1, 0.1], False)]
    result = calibrate(rows)
    assert 0.1 < result.thresholds.lower <= result.thresholds.upper < 0.6
    assert (result.rows, result.accuracy, result.correct, result.incorrect) == (3, 1, 1, 1)


def test_calibration_leaves_the_mixed_middle_ambiguous() -> None:
    mixed = [Judged([0.01 * i], i % 2 == 0) for i in range(-10, 11)]
    clear = [Judged([0.8 + 0.01 * i], True) for i in range(10)]
    poor = [Judged([-0.8 - 0.01 * i], False) for i in range(10)]
    result = calibrate([*mixed, *clear, *poor])
    assert result.correct >= 0.9
    assert result.incorrect >= 0.9
    assert result.ambiguous > 0.1
    assert 0.6 < result.accuracy < 1


@pytest.mark.parametrize("rows", [[], [Judged([0.5], True)], [Judged([0.5], False)] * 3])
def test_calibration_needs_both_kinds(rows: list[Judged]) -> None:
    with pytest.raises(ValueError, match="some without"):
        calibrate(rows)
