"""From scores to actions, and thresholds from labelled rows."""

import math
import random
from collections.abc import Sequence
from itertools import combinations_with_replacement

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag import thresholds
from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.thresholds import PRESETS, Judged, Stated, Thresholds, calibrate, measure

POPQA = PRESETS["popqa"]


def test_actions_of_the_paper() -> None:
    assert POPQA.action([-1, 0.591]) == "correct"
    assert POPQA.action([0.59, -1]) == "ambiguous", "equal is not above"
    assert POPQA.action([-0.99]) == "ambiguous", "nor below"
    assert POPQA.action([-1, -0.995]) == POPQA.action([]) == "incorrect"


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


@pytest.mark.parametrize("known", [[], rows((0.5, False)), [*rows((0.5, True)), Judged([], False)]])
def test_calibration_needs_both_kinds(known: list[Judged]) -> None:
    with pytest.raises(ValueError, match="rows without one"):
        calibrate(known)


def test_a_worth_off_the_scale() -> None:
    for worth in (-0.01, 1.01):
        with pytest.raises(ValueError, match="0 to 1"):
            measure(rows((0.5, True)), POPQA, ambiguous_worth=worth)


STATED = st.none() | st.integers(-20, 20).map(lambda n: n / 7), st.sampled_from([0.0, 0.25, 1.0])
ANSWERS = st.lists(st.builds(Stated, *STATED), min_size=9, max_size=40)


@given(ANSWERS, st.sampled_from([0.1, 0.2, 0.5, 0.9]))
def test_the_lowest_threshold_within_the_bound(answers: Sequence[Stated], max_wrong: float) -> None:
    found = thresholds.bound_wrong(answers, max_wrong)
    above = -math.inf if found.score_above is None else found.score_above
    stated = [a for a in answers if a.score is not None and a.score > above]
    assert (found.answered, found.questions) == (len(stated), len(answers))
    assert found.wrong == pytest.approx(sum(a.loss for a in stated))
    assert (found.wrong + 1) / (len(answers) + 1) <= max_wrong + 1e-6
    scores = {a.score for a in answers if a.score is not None and a.score <= above}
    if scores:  # a lower threshold states those with the next score too
        more = [a for a in answers if a.score is not None and a.score >= max(scores)]
        assert (sum(a.loss for a in more) + 1) / (len(answers) + 1) > max_wrong
    assert thresholds.refusal_thresholds(answers)[0] is None


def test_the_bound_of_a_few_answers() -> None:
    """With nine questions none may be wrong at 0.1, and one at 0.2."""
    right, wrong = [Stated(n + 0.12345, 0.0) for n in range(7)], Stated(2.5, 1.0)
    refused = Stated(None, 1.0)  # never stated, so never wrong
    rows = [*right, wrong, refused]
    assert thresholds.bound_wrong(rows, 0.1) == (2.5, 4, 0.0, 9)
    assert thresholds.bound_wrong(rows, 0.2) == (None, 8, 1.0, 9)
    assert thresholds.bound_wrong([Stated(5.00001, 1.0)] * 9, 0.1) == (5.0001, 0, 0.0, 9)
    assert thresholds.measure_refusals(rows, 5.1).answered == 2


@pytest.mark.parametrize(
    ("number", "max_wrong", "error"),
    [
        (8, 0.1, "max_wrong=0.1 needs at least 9 labelled questions, got 8"),
        (0, 0.5, "needs at least 1 labelled questions, got 0"),
        (9, 0, "max_wrong must be above 0 and below 1, got 0"),
        (9, 1.0, "must be above 0 and below 1"),
        (9, math.nan, "must be above 0 and below 1"),
    ],
)
def test_a_bound_that_cannot_be_had(number: int, max_wrong: float, error: str) -> None:
    with pytest.raises(BadArgument, match=error):
        thresholds.bound_wrong([Stated(0.5, 0.0)] * number, max_wrong)


@pytest.mark.parametrize("max_wrong", [0.05, 0.1, 0.2])
@pytest.mark.parametrize("number", [40, 200])
def test_the_bound_holds_on_average_and_is_not_loose(number: int, max_wrong: float) -> None:
    """An answer is right with the probability that its uniform score names, so that the share of
    wrong answers above t is exactly (1 - t)^2 / 2. Theorems 1 and 2 of the paper."""
    rng, risks = random.Random(0), list[float]()
    for _ in range(200):
        scores = [rng.random() for _ in range(number)]
        rows = [Stated(score, float(rng.random() > score)) for score in scores]
        above = thresholds.bound_wrong(rows, max_wrong).score_above or 0.0
        risks.append((1 - above) ** 2 / 2)
    mean = math.fsum(risks) / 200
    error = math.sqrt(math.fsum((risk - mean) ** 2 for risk in risks) / 199 / 200)
    assert mean <= max_wrong + 2 * error
    assert mean >= max_wrong - 2 / (number + 1) - 2 * error
