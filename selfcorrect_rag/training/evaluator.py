"""CRAG's retrieval evaluator: its fine-tuning, a regression to +1 and -1 (section 4.2, B.2), and
the calibration of any evaluator's thresholds."""

import dataclasses
import os
import zlib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.models.checkpoints import loading, max_input_tokens
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, grade, titled
from selfcorrect_rag.models.t5_evaluator import MAX_TOKENS, PairTokenizer, T5Evaluator
from selfcorrect_rag.thresholds import Calibration, Judged, calibrate, measure
from selfcorrect_rag.training import fine_tuning
from selfcorrect_rag.training.fine_tuning import TuningOptions
from selfcorrect_rag.training.rows import (
    PARTS,
    Filled,
    Progress,
    Row,
    as_document,
    part_of,
    read_rows,
)

EvaluatorText = Annotated[str, BeforeValidator(lambda given: titled(as_document(given)))]
"""A passage of a row, as an evaluator reads it."""


class EvaluatorOptions(
    TuningOptions,
    model="google-t5/t5-large",
    num_train_epochs=8.0,
    learning_rate=1e-4,
    warmup_ratio=0.0,
    batch_size=12,
    per_device_batch_size=12,
    max_length=MAX_TOKENS,
):
    """Options of ``train evaluator``, the official code's; rows are {question, positives,
    negatives}, their passages texts or {title, text}. The model may be any classifier."""


class Graded(Row):
    """A question, and passages known to be relevant to it or not, as an evaluator reads them."""

    question: Filled
    positives: tuple[EvaluatorText, ...] = ()
    negatives: tuple[EvaluatorText, ...] = ()

    @model_validator(mode="after")
    def _has_passages(self) -> "Graded":
        if not self.positives and not self.negatives:
            raise ValueError("positives and negatives are both empty")
        if set(self.positives) & set(self.negatives):
            raise ValueError("a passage is both positive and negative")
        return self

    @property
    def pairs(self) -> list[tuple[str, float]]:
        """Each passage with the paper's label, +1 or -1 (CRAG appendix B.2)."""
        return [(p, 1.0) for p in self.positives] + [(p, -1.0) for p in self.negatives]


def train_evaluator(
    options: EvaluatorOptions, progress: Progress = None, *, base: tuple[Any, Any] | None = None
) -> dict[str, Any]:
    """Fine-tune CRAG's retrieval evaluator, calibrate its thresholds and test both.

    Thresholds are calibrated on development questions and written into the result,
    ``out / "evaluator"``. The report has the ``questions`` by part, the ``calibration``, and of the
    ``test`` part how many ``pairs``, the ``auc`` and what the thresholds do (``actions``).
    """
    rows, folder = read_rows(options.data, Graded), options.out / "evaluator"
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise BadTrainingData("an evaluator is trained by one process; launch only one")
    run_id = fine_tuning.prepare(options, rows)
    parts = {name: [row for row in rows if part_of(row.question) == name] for name in PARTS}
    for name, of_part in parts.items():
        if not (any(row.positives for row in of_part) and any(row.negatives for row in of_part)):
            raise BadTrainingData(
                f"the {name} part ({len(of_part)} questions) needs relevant and irrelevant passages"
            )
    from transformers import DataCollatorWithPadding

    model, tokenizer = _load(options.model, base)
    pairs = PairTokenizer(tokenizer, max_tokens=max_input_tokens(model, options.max_length))
    labelled = [(row.question, text, label) for row in parts["train"] for text, label in row.pairs]
    encoded = pairs.encode([(question, text) for question, text, _ in labelled])
    examples = [{**e, "labels": label} for e, (_, _, label) in zip(encoded, labelled, strict=True)]
    fine_tuning.fine_tune(model, examples, DataCollatorWithPadding(tokenizer), options, run_id)
    evaluator = T5Evaluator(model, tokenizer, max_tokens=options.max_length)
    calibration = calibrate(judge_questions(evaluator, parts["development"]))
    thresholds = calibration.thresholds
    model.config.crag_thresholds = [thresholds.upper, thresholds.lower]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    scored = [pair for row in parts["test"] for pair in _scores(evaluator, row)]
    actions = measure(judge_questions(evaluator, parts["test"]), thresholds)
    report = {
        "questions": {name: len(of_part) for name, of_part in parts.items()},
        "calibration": _as_json(calibration),
        "test": {"pairs": len(scored), "auc": auc(scored), "actions": _as_json(actions)},
    }
    return fine_tuning.write_report(options.out, report)


def calibrate_evaluator(evaluator: RetrievalEvaluator, rows: Iterable[Graded]) -> dict[str, Any]:
    """Choose the thresholds of any evaluator by :func:`~selfcorrect_rag.thresholds.calibrate`, from
    questions on which it was not trained.

    Returns the calibration on the rows that chose it, which is optimistic; under ``held_out`` that
    of each half of the questions on the other half, empty if there are too few.
    """
    # In an order that depends on the questions alone, not on how a file is sorted.
    ordered = sorted(rows, key=lambda row: zlib.crc32(row.question.encode()))
    halves = [judge_questions(evaluator, half) for half in (ordered[::2], ordered[1::2])]
    found = [calibrate([*halves[0], *halves[1]])]
    if all(len({row.relevant for row in half}) == 2 for half in halves):
        for half, other in (halves, halves[::-1]):
            thresholds = calibrate(half).thresholds
            found.append(measure(other, thresholds))
    return {**_as_json(found[0]), "held_out": [_as_json(each) for each in found[1:]]}


def judge_questions(evaluator: RetrievalEvaluator, rows: Sequence[Graded]) -> list[Judged]:
    """Each question twice: with all its passages, and with its irrelevant ones alone."""
    judged = []
    for row in rows:
        scored = _scores(evaluator, row)
        wrong = [score for score, label in scored if label < 0]
        if len(wrong) < len(scored):
            judged.append(Judged([score for score, _ in scored], relevant=True))
        if wrong:
            judged.append(Judged(wrong, relevant=False))
    return judged


def auc(scored: Sequence[tuple[float, float]]) -> float:
    """How often a positive pair (label above 0) scores above a negative one; ties count half."""
    import numpy as np

    positives = [score for score, label in scored if label > 0]
    negatives = sorted(score for score, label in scored if label <= 0)
    below, upto = (np.searchsorted(negatives, positives, side).sum() for side in ("left", "right"))
    return float(below + upto) / (2 * len(positives) * len(negatives))


def _scores(evaluator: RetrievalEvaluator, row: Graded) -> list[tuple[float, float]]:
    texts, labels = zip(*row.pairs, strict=True)
    return list(zip(grade(evaluator, row.question, texts), labels, strict=True))


def _as_json(calibration: Calibration) -> dict[str, Any]:
    thresholds = dataclasses.asdict(calibration.thresholds)
    return {**calibration._asdict(), "thresholds": thresholds}


def _load(name: str, base: tuple[Any, Any] | None) -> tuple[Any, Any]:
    """Return ``base`` or the named classifier, and check that its score can be read."""
    from transformers import AutoModelForSequenceClassification as Classifier
    from transformers import AutoTokenizer

    if base is None:
        with loading(name):
            model = Classifier.from_pretrained(name, num_labels=1, dtype="float32")
            base = model, AutoTokenizer.from_pretrained(name)
    model, tokenizer = base
    # A decoder is read at the last token that is not padding, a T5 at its end token.
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    ends = tokenizer("a")["input_ids"][-1:] == [tokenizer.eos_token_id]
    if tokenizer.pad_token is None or (model.config.is_encoder_decoder and not ends):
        raise BadTrainingData(
            f"the tokenizer of {name} adds no end token (eos_token), at which the score is read; "
            "give a base whose tokenizer does, such as google-t5/t5-large"
        )
    model.config.problem_type = "regression"
    model.config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer
