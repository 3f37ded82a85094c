"""Thresholds are chosen from labelled questions, measured on held-out ones."""

import json
from collections.abc import Sequence

from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.training.evaluator import Graded, calibrate_evaluator


class LastNumber(RetrievalEvaluator):
    """Grades a passage by the number that it ends with."""

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        return [float(passage.split()[-1]) for passage in passages]


EVALUATOR = LastNumber()
GOOD, BAD = [0.5 + n / 40 for n in range(12)], [-0.5 - n / 40 for n in range(12)]
ROWS = [
    Graded(question=f"Who is {good}?", positives=(f"good {good}",), negatives=(f"bad {bad}",))
    for good, bad in zip(GOOD, BAD, strict=True)
]


def test_thresholds_part_what_can_be_parted() -> None:
    found = calibrate_evaluator(EVALUATOR, ROWS)
    assert found["counts"] == {"correct": 12, "incorrect": 12, "ambiguous": 0}
    assert -0.5 < found["thresholds"]["lower"] <= found["thresholds"]["upper"] < 0.5
    assert found["action_accuracy"] == 1.0
    assert len(found["held_out"]) == 2
    assert calibrate_evaluator(EVALUATOR, ROWS[::-1]) == found  # whatever the file's order
    assert json.loads(json.dumps(found)) == found
    assert calibrate_evaluator(EVALUATOR, ROWS[:1])["held_out"] == []
