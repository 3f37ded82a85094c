"""Calibrates CRAG's thresholds for an evaluator, without training it."""

import dataclasses
import zlib
from collections.abc import Iterable
from typing import Any

from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.thresholds import calibrate, measure
from selfcorrect_rag.training.evaluator import Graded, judge_questions


def calibrate_evaluator(
    evaluator: RetrievalEvaluator, rows: Iterable[Graded], *, ambiguous_worth: float = 0.75
) -> dict[str, Any]:
    """Choose an evaluator's thresholds. Each question counts as two retrievals: all its passages,
    and its irrelevant ones alone.

    Args:
        evaluator: any retrieval evaluator.
        rows: questions on which it was not trained.
        ambiguous_worth: what an ambiguous action counts, from 0 (wrong) to 1 (right).

    Returns:
        The :class:`~selfcorrect_rag.thresholds.Calibration` as JSON values, on the rows that chose
        it, which is optimistic. Under ``held_out`` thresholds of each half of the questions, on the
        other half; empty if there are too few.

    Raises:
        ValueError: ``ambiguous_worth`` is outside of 0 to 1, or a kind of rows is missing.
    """
    # In an order that depends on the questions alone, not on how a file is sorted.
    ordered = sorted(rows, key=lambda row: zlib.crc32(row.question.encode()))
    halves = [judge_questions(evaluator, half) for half in (ordered[::2], ordered[1::2])]
    found = [calibrate([*halves[0], *halves[1]], ambiguous_worth=ambiguous_worth)]
    if all(len({row.relevant for row in half}) == 2 for half in halves):
        for half, other in (halves, halves[::-1]):
            thresholds = calibrate(half, ambiguous_worth=ambiguous_worth).thresholds
            found.append(measure(other, thresholds, ambiguous_worth=ambiguous_worth))
    made = [{**c._asdict(), "thresholds": dataclasses.asdict(c.thresholds)} for c in found]
    return {**made[0], "held_out": made[1:]}
