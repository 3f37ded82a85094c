"""What methods are sure by, and the curve of answering less."""

from typing import Any

import pytest

from selfcorrect_rag.evaluation.abstention import BEST_GRADE, ISSUP, MOST_POINTS, SEQUENCE, curves
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.run import Finished


def candidate(issup: float | None, probability: float, chosen: bool = True) -> dict[str, Any]:
    critique = {"ISREL": 1.0, "ISSUP": issup}
    return {"critique": critique, "sequence_probability": probability, "chosen": chosen}


def curve_of(outcomes: list[Outcome], scores: list[float | None]) -> Any:
    questions = [Question(outcome.id, "?") for outcome in outcomes]
    rows = {outcome.id: score for outcome, score in zip(outcomes, scores, strict=True)}
    return curves(Finished(questions, outcomes), {"m": rows}).get("m")


def outcome(number: int, **more: Any) -> Outcome:
    return Outcome(str(number), "m", "an answer")._replace(**more)


def test_crag_is_as_sure_as_its_best_grade() -> None:
    rows = [outcome(1, grades=(-0.9, 0.8)), outcome(2, grades=(0.5, 0.1)), outcome(3)]
    found = curve_of(rows, [1.0, 0.0, 1.0])
    assert found["confidence"] == BEST_GRADE
    assert [point["threshold"] for point in found["points"]] == [0.8, 0.5, -1.0]
    assert [point["accuracy"] for point in found["points"]] == pytest.approx([1, 0.5, 2 / 3])
    assert found["points"][0]["answered"] == pytest.approx(1 / 3)


def test_self_rag_is_as_sure_as_its_chosen_segment() -> None:
    judged = [
        outcome(1, candidates=(candidate(0.9, 0.1), candidate(0.99, 1, chosen=False))),
        outcome(2, candidates=(candidate(0.2, 0.9),), grades=(1.0,)),
    ]
    found = curve_of(judged, [1.0, 0.0])
    assert found["confidence"] == ISSUP
    assert [point["threshold"] for point in found["points"]] == [0.9, 0.2]
    unjudged = [outcome(n, candidates=(candidate(None, n / 10),)) for n in (1, 2)]
    found = curve_of(unjudged, [1.0, 0.0])
    assert found["confidence"] == SEQUENCE
    assert [point["threshold"] for point in found["points"]] == [0.2, 0.1]


def test_others_have_no_curve_and_long_ones_keep_their_end() -> None:
    assert curve_of([outcome(1)], [1.0]) is None
    assert curve_of([outcome(1, grades=(0.5,), refused=True)], [0.0]) is None
    many = [outcome(n, grades=(n / 1_000,)) for n in range(950)]
    points = curve_of(many, [1.0] * 950)["points"]
    assert len(points) <= MOST_POINTS
    assert points[-1] == {"threshold": 0.0, "answered": 1.0, "accuracy": 1.0}
