"""Calibrates CRAG's thresholds: an evaluator's grades of labelled passages, and what they do."""

import zlib
from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.evaluation.tasks import read_rows
from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.models.retrieval_evaluator import grade, titled
from selfcorrect_rag.thresholds import Judged, calibrate, measure

LabelledQuestion = tuple[str, list[str], list[str]]
"""A question, and passages known to be relevant, and not."""


def read_labelled(path: Path) -> list[LabelledQuestion]:
    """Read rows ``{"question": ..., "positives": [...], "negatives": [...]}`` of a file; a passage
    is a text, or ``{"title": ..., "text": ...}``.

    Raises:
        BadTask: the file cannot be read.
        BadTrainingData: a row is not of this form, or no passage is relevant, or none irrelevant.
    """
    rows: list[LabelledQuestion] = []
    for place, row in read_rows(path):
        given: Any = row
        try:
            positives = [_text(passage) for passage in given["positives"] or []]
            negatives = [_text(passage) for passage in given["negatives"] or []]
            rows.append((str(given["question"]), positives, negatives))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadTrainingData(
                f'{place} must be {{"question": ..., "positives": [...], "negatives": [...]}}'
            ) from error
    if not (any(row[1] for row in rows) and any(row[2] for row in rows)):
        raise BadTrainingData(f"{path} needs relevant and irrelevant passages")
    return rows


def _text(given: Any) -> str:
    passage = {"text": given} if isinstance(given, str) else given
    return titled(Document(passage["text"], metadata={"title": passage.get("title")}))


def calibrate_evaluator(
    evaluator: RetrievalEvaluator,
    rows: Iterable[LabelledQuestion],
    *,
    ambiguous_worth: float = 0.75,
) -> dict[str, Any]:
    """Choose an evaluator's thresholds. Each question counts as two retrievals: all its passages,
    and its irrelevant ones alone.

    Args:
        evaluator: any retrieval evaluator.
        rows: questions on which it was not trained.
        ambiguous_worth: what an ambiguous action counts, from 0 (wrong) to 1 (right).

    Returns:
        The :class:`Calibration` as JSON values, on the rows that chose it, which is optimistic.
        Under ``held_out`` thresholds of each half of the questions, on the other half; empty if
        there are too few.

    Raises:
        ValueError: ``ambiguous_worth`` is outside of 0 to 1, or a kind of rows is missing.
    """
    judged = []
    # In an order that depends on the questions alone, not on how a file is sorted.
    for question, positives, negatives in sorted(rows, key=lambda r: zlib.crc32(r[0].encode())):
        scores = list(grade(evaluator, question, [*positives, *negatives]))
        pair = [Judged(scores, relevant=True)] if positives else []
        pair += [Judged(scores[len(positives) :], relevant=False)] if negatives else []
        judged.append(pair)
    every, *halves = (list(chain(*part)) for part in (judged, judged[::2], judged[1::2]))
    found = [calibrate(every, ambiguous_worth=ambiguous_worth)]
    if all(len({row.relevant for row in half}) == 2 for half in halves):
        for half, other in (halves, halves[::-1]):
            thresholds = calibrate(half, ambiguous_worth=ambiguous_worth).thresholds
            found.append(measure(other, thresholds, ambiguous_worth=ambiguous_worth))
    first, *rest = ({**each._asdict(), "thresholds": asdict(each.thresholds)} for each in found)
    return {**first, "held_out": rest}
