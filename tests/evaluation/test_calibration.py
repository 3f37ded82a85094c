"""Thresholds are chosen from labelled questions, measured on held-out ones."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.evaluation.calibration import (
    calibrate_evaluator,
    read_labelled,
)
from selfcorrect_rag.models import RetrievalEvaluator


class LastNumber(RetrievalEvaluator):
    """Grades a passage by the number that it ends with."""

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        return [float(passage.split()[-1]) for passage in passages]


EVALUATOR = LastNumber()
ROWS = [(f"Who is {n}?", [f"good {0.5 + n / 40}"], [f"bad {-0.5 - n / 40}"]) for n in range(12)]


def test_thresholds_part_what_can_be_parted() -> None:
    found = calibrate_evaluator(EVALUATOR, ROWS)
    assert found["counts"] == {"correct": 12, "incorrect": 12, "ambiguous": 0}
    assert -0.5 < found["thresholds"]["lower"] <= found["thresholds"]["upper"] < 0.5
    assert found["action_accuracy"] == 1.0
    assert len(found["held_out"]) == 2
    assert calibrate_evaluator(EVALUATOR, ROWS[::-1]) == found  # whatever the file's order
    assert json.loads(json.dumps(found)) == found
    assert calibrate_evaluator(EVALUATOR, ROWS[:1])["held_out"] == []


def test_rows_are_read_and_checked(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(
        '{"question": "Who?", "positives": [{"title": "T", "text": "x"}], "negatives": ["y"]}\n'
    )
    ((question, (positive,), negatives),) = read_labelled(file)
    assert (question, negatives) == ("Who?", ["y"])
    assert "T" in positive
    assert "x" in positive
    for bad in (
        '{"positives": ["x"]}',
        '{"question": "Who?", "positives": [3]}',
        "{",
        '{"question": "Who?", "positives": ["x"]}',
    ):
        file.write_text(bad)
        with pytest.raises(BadTrainingData):
            read_labelled(file)
