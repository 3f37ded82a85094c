"""From scores to actions, and thresholds from labelled rows."""

import math
from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.thresholds import PRESETS, Judged, Thresholds, calibrate, measure

POPQA = PRESETS["popqa"]


@pytest.mark.parametrize(
    ("scores", "action"),
    [
        ([-1, 0.591], "correct"),
        ([0.59, -1], "ambiguous"),  # equal is not above
        ([-0.99], "ambiguous"),  # nor below
        ([-1, -0.995], "incorrect"),
        ([], "incorrect"),
    ],
)
def test_actions_of_the_paper(scores: list[float], action: str) -> None:
    assert POPQA.action(scores) == action


def test_presets_are_the_papers() -> None:
    found = {name: (t.upper, t.lower) for name, t in PRESETS.items()}
    short, bio = dict.fromkeys(("pubqa", "arc"), (0.5, -0.91)), {"bio": (0.95, -0.91)}
    assert found == {"popqa": (0.59, -0.99), **short, **bio}


@pytest.mark.parametrize(("upper", "lower"), [(-0.5, 0.5), (1.5, 0), (0, -2), (math.nan, 0)])
def test_thresholds_that_make_no_sense(upper: float, lower: float) -> None:
    with pytest.raises(ValueError, match="lower <= upper"):
        Thresholds(upper=upper, lower=lower)


@given(st.lists(st.floats(-1, 1), max_size=10), st.floats(-1, 1))
def test_each_action_can_be_left_out(scores: list[float], border: float) -> None:
    """The ablations of Table 2."""
    assert Thresholds(upper=border, lower=border).action(scores) != "ambiguous"
    assert Thresholds(upper=1, lower=border).action(scores) != "correct" or border == 1
    if scores:
        assert Thresholds(upper=border, lower=-1).action(scores) != "incorrect" or border == -1


def rows(*scored: tuple[float, bool]) -> list[Judged]:
    return [Judged([-1.0, score], relevant) for score, relevant in scored]


SCORES = st.lists(st.integers(-10, 10).map(lambda n: n / 10), min_size=1, max_size=3)
OF_BOTH_KINDS = st.lists(st.builds(Judged, SCORES, st.booleans()), min_size=2, max_size=12).filter(
    lambda rows: len({row.relevant for row in rows}) == 2
)


@given(OF_BOTH_KINDS, st.sampled_from([0.0, 0.5, 0.75, 0.9, 1.0]))
def test_no_other_thresholds_are_better(judged: list[Judged], worth: float) -> None:
    grid = [-1.0, *(n / 20 for n in range(-19, 20, 2)), 1.0]  # between any two scores
    best = max(
        measure(judged, Thresholds(upper=upper, lower=lower), ambiguous_worth=worth).action_accuracy
        for lower, upper in combinations_with_replacement(grid, 2)
    )
    assert calibrate(judged, ambiguous_worth=worth).action_accuracy == pytest.approx(best)


def test_of_equals_the_most_cautious_are_chosen() -> None:
    judged = rows((0.5, True), (-0.5, False))
    assert calibrate(judged, ambiguous_worth=1.0).thresholds == Thresholds(upper=1.0, lower=-1.0)
    assert calibrate(judged) == calibrate(judged, ambiguous_worth=0.75)


def test_measuring_other_rows() -> None:
    result = measure(rows((0.9, False), (0.7, True), (-0.2, True), (-1, False)), POPQA)
    assert result.counts == {"correct": 2, "incorrect": 1, "ambiguous": 1}
    assert result.action_accuracy == pytest.approx(2.75 / 4)


def test_a_score_of_minus_one_is_above_no_threshold() -> None:
    """Calling everything correct would be best here, and no threshold does it."""
    judged = [Judged([-1.0], True), Judged([0.5], True), Judged([0.5], True), Judged([0.5], False)]
    result = calibrate(judged, ambiguous_worth=0.0)
    assert result.action_accuracy == pytest.approx(2 / 4)
    assert result.thresholds.upper > -1
    assert result.counts["correct"] == 3


@pytest.mark.parametrize(
    "judged", [[], rows((0.5, False)), [*rows((0.5, True)), Judged([], False)]]
)
def test_calibration_needs_both_kinds(judged: list[Judged]) -> None:
    with pytest.raises(ValueError, match="rows without one"):
        calibrate(judged)


def test_a_worth_off_the_scale() -> None:
    for worth in (-0.01, 1.01):
        with pytest.raises(ValueError, match="0 to 1"):
            measure(rows((0.5, True)), POPQA, ambiguous_worth=worth)
