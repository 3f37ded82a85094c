"""Calibrates CRAG's thresholds: an evaluator's grades of labelled passages, and what they do."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.evaluation.tasks import read_rows
from selfcorrect_rag.journal import replace_file
from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.models.retrieval_evaluator import grade, titled
from selfcorrect_rag.thresholds import Calibration, Judged, Thresholds, calibrate, measure


class LabelledQuestion(NamedTuple):
    """A question with passages known to be relevant, and not."""

    question: str
    positives: list[str]
    negatives: list[str]


class EvaluatorCalibration(NamedTuple):
    """The thresholds chosen, and what they do."""

    chosen: Calibration
    """On the rows that they were chosen on, which is optimistic."""
    held_out: list[Calibration]
    """Thresholds of each half of the questions, on the other half; empty if there are too few."""

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        every = (self.chosen, *self.held_out)
        first, *rest = ({**c._asdict(), "thresholds": asdict(c.thresholds)} for c in every)
        return {**first, "held_out": rest}


def read_labelled(path: Path) -> list[LabelledQuestion]:
    """Read rows ``{"question": ..., "positives": [...], "negatives": [...]}`` of a file; a passage
    is a text, or ``{"title": ..., "text": ...}``.

    Raises:
        BadTask: the file cannot be read.
        BadTrainingData: a row is not of this form, or no passage is relevant, or none irrelevant.
    """
    rows = []
    for place, row in read_rows(path):
        given: Any = row if isinstance(row, Mapping) else {}
        try:
            passages = [[_text(p) for p in given.get(k) or []] for k in ("positives", "negatives")]
            rows.append(LabelledQuestion(str(given["question"]), *passages))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadTrainingData(
                f'{place} must be {{"question": ..., "positives": [...], "negatives": [...]}}'
            ) from error
    if not any(row.positives for row in rows) or not any(row.negatives for row in rows):
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
) -> EvaluatorCalibration:
    """Choose an evaluator's thresholds. Each question counts as two retrievals: all its passages,
    and its irrelevant ones alone.

    Args:
        evaluator: any retrieval evaluator.
        rows: questions on which it was not trained.
        ambiguous_worth: what an ambiguous action counts, from 0 (wrong) to 1 (right).

    Raises:
        ValueError: ``ambiguous_worth`` is outside of 0 to 1, or a kind of rows is missing.
    """
    # In an order that depends on the questions alone, not on how a file is sorted.
    ordered = sorted(rows, key=lambda row: zlib.crc32(row.question.encode()))
    judged = [list(_retrievals(evaluator, row)) for row in ordered]
    chosen = calibrate(_flat(judged), ambiguous_worth=ambiguous_worth)
    halves = [_flat(judged[::2]), _flat(judged[1::2])]
    held_out = []
    if all(len({row.relevant for row in half}) == 2 for half in halves):
        for half, other in (halves, halves[::-1]):
            thresholds = calibrate(half, ambiguous_worth=ambiguous_worth).thresholds
            held_out.append(measure(other, thresholds, ambiguous_worth=ambiguous_worth))
    return EvaluatorCalibration(chosen, held_out)


def _retrievals(evaluator: RetrievalEvaluator, row: LabelledQuestion) -> Iterator[Judged]:
    scores = list(grade(evaluator, row.question, [*row.positives, *row.negatives]))
    if row.positives:
        yield Judged(scores, relevant=True)
    if row.negatives:
        yield Judged(scores[len(row.positives) :], relevant=False)


def _flat(judged: Sequence[Sequence[Judged]]) -> list[Judged]:
    return [retrieval for each in judged for retrieval in each]


def write_thresholds(checkpoint: Path, thresholds: Thresholds) -> Path:
    """Write ``crag_thresholds`` into a checkpoint's config.json, whole or not at all.

    Raises:
        BadTrainingData: the folder has no config.json.
    """
    config = checkpoint / "config.json"
    try:
        settings = json.loads(config.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadTrainingData(
            f"{checkpoint} must be a folder with a config.json: {error}"
        ) from error
    settings["crag_thresholds"] = [thresholds.upper, thresholds.lower]
    with replace_file(config) as draft:
        draft.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return config
