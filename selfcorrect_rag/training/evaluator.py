"""Fine-tunes CRAG's retrieval evaluator: regression to +1 and -1 (section 4.2, appendix B.2)."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.extras import require
from selfcorrect_rag.models.pairs import PairTokenizer
from selfcorrect_rag.models.t5_evaluator import MAX_TOKENS, T5Evaluator
from selfcorrect_rag.thresholds import Calibration, Judged, calibrate, measure
from selfcorrect_rag.training.pairs import Graded, mine_negatives
from selfcorrect_rag.training.runs import keep_settings, newest_checkpoint

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


SAVE_STEPS = 200
"""Between checkpoints."""


@dataclass(frozen=True)
class EvaluatorSettings:
    """What decides the result; defaults are the official code's."""

    model: str = "google-t5/t5-large"
    """A folder or hub name of a T5, or of any model that classifies sequences."""
    epochs: float = 8.0
    rate: float = 1e-4
    """Peak learning rate of AdamW; linear decay, no warm-up."""
    batch: int = 12
    """Pairs a step."""
    hard_negatives: int = 3
    """For each question, from the corpus."""
    longest: int = MAX_TOKENS
    """Tokens of a pair."""
    seed: int = 0


def train_evaluator(
    rows: Sequence[Graded],
    out: Path,
    settings: EvaluatorSettings | None = None,
    *,
    corpus: Sequence[str] = (),
    base: "tuple[PreTrainedModel, PreTrainedTokenizerBase] | None" = None,
) -> dict[str, Any]:
    """Fine-tune an evaluator and report on questions that it never saw.

    The same call goes on from the newest checkpoint in ``out`` after a kill. Thresholds are
    calibrated on development questions and written into the checkpoint; the report is on test
    questions. What belongs to which part follows from the question alone.

    Args:
        rows: questions with relevant and irrelevant passages.
        out: folder of checkpoints, the result (``evaluator``) and ``report.json``.
        settings: see :class:`EvaluatorSettings`.
        corpus: where hard negatives are looked for; the positives of all rows by default.
        base: a model and its tokenizer to begin from, in place of ``settings.model``.

    Raises:
        MissingExtra: torch, transformers or accelerate is not installed.
        BadTrainingData: a part of the data has no question, or labels of one kind only.
    """
    settings = settings or EvaluatorSettings()
    transformers = require("transformers", "train")
    require("accelerate", "train")
    transformers.set_seed(settings.seed)
    corpus = corpus or [passage for row in rows for passage in row.positives]
    mined = mine_negatives(rows, corpus, settings.hard_negatives)
    parts = {
        name: [row for row in mined if row.part == name]
        for name in ("train", "development", "test")
    }
    for name, of_part in parts.items():
        labels = {label for row in of_part for _, label in row.labelled}
        if labels != {1.0, -1.0}:
            raise BadTrainingData(
                f"the {name} part ({len(of_part)} questions) needs relevant and irrelevant passages"
            )
    keep_settings(out / "settings.json", dataclasses.asdict(settings))
    model, tokenizer = base or _pretrained(settings.model)
    trainer = _trainer(model, tokenizer, parts["train"], out, settings)
    trainer.train(resume_from_checkpoint=newest_checkpoint(out / "checkpoints"))
    evaluator = T5Evaluator(model, tokenizer, max_tokens=settings.longest)
    calibration = calibrate(judged(evaluator, parts["development"]))
    evaluator.thresholds = calibration.thresholds
    model.config.crag_thresholds = [calibration.thresholds.upper, calibration.thresholds.lower]
    model.save_pretrained(out / "evaluator")
    tokenizer.save_pretrained(out / "evaluator")
    report = {
        "questions": {name: len(of_part) for name, of_part in parts.items()},
        "calibration": _readable(calibration),
        "test": held_out_report(evaluator, parts["test"]),
    }
    (out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return report


def held_out_report(evaluator: T5Evaluator, rows: Sequence[Graded]) -> dict[str, Any]:
    """How well pairs and whole retrievals of ``rows`` are judged.

    AUC and best accuracy over pairs, against the base rate of always saying the commoner label;
    then what the evaluator's thresholds do on whole retrievals.
    """
    scored = [(s, label) for row in rows for s, label in _scored(evaluator, row)]
    positives = sum(label > 0 for _, label in scored) / len(scored)
    return {
        "pairs": len(scored),
        "auc": auc(scored),
        "best_accuracy": _best_accuracy(scored),
        "base_rate": max(positives, 1 - positives),
        "actions": _readable(measure(judged(evaluator, rows), evaluator.thresholds)),
    }


def judged(evaluator: T5Evaluator, rows: Sequence[Graded]) -> list[Judged]:
    """Each question twice: with all its passages, and with its irrelevant ones alone."""
    found = []
    for row in rows:
        scored = _scored(evaluator, row)
        wrong = [score for score, label in scored if label < 0]
        if len(wrong) < len(scored):
            found.append(Judged([score for score, _ in scored], relevant=True))
        if wrong:
            found.append(Judged(wrong, relevant=False))
    return found


def auc(scored: Sequence[tuple[float, float]]) -> float:
    """How often a relevant passage scores above an irrelevant one; ties count half."""
    ordered = sorted(score for score, _ in scored)
    first: dict[float, int] = {}
    last: dict[float, int] = {}
    for rank, score in enumerate(ordered, start=1):
        first.setdefault(score, rank)
        last[score] = rank
    ranks = [(first[score] + last[score]) / 2 for score, label in scored if label > 0]
    positives, negatives = len(ranks), len(scored) - len(ranks)
    return (sum(ranks) - positives * (positives + 1) / 2) / (positives * negatives)


def _scored(evaluator: T5Evaluator, row: Graded) -> list[tuple[float, float]]:
    passages, labels = zip(*row.labelled, strict=True)
    return list(zip(evaluator.score(row.question, passages), labels, strict=True))


def _best_accuracy(scored: Sequence[tuple[float, float]]) -> float:
    """Of the threshold that fits these pairs best."""
    right = sum(label < 0 for _, label in scored)  # all called irrelevant
    best = right
    ordered = sorted(scored, reverse=True)
    for i, (score, label) in enumerate(ordered):
        right += 1 if label > 0 else -1
        if i + 1 == len(ordered) or ordered[i + 1][0] != score:
            best = max(best, right)
    return best / len(scored)


def _trainer(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    rows: Sequence[Graded],
    out: Path,
    settings: EvaluatorSettings,
) -> Any:
    import torch
    from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

    labelled = [(row.question, passage, label) for row in rows for passage, label in row.labelled]
    # Read as the evaluator will read, down to the ids.
    pairs = PairTokenizer(tokenizer, separator=None, max_tokens=settings.longest)
    encoded = pairs.encode([(question, passage) for question, passage, _ in labelled])
    examples = [
        {**ids, "labels": label} for ids, (_, _, label) in zip(encoded, labelled, strict=True)
    ]
    model.config.problem_type = "regression"
    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        num_train_epochs=settings.epochs,
        learning_rate=settings.rate,
        per_device_train_batch_size=settings.batch,
        lr_scheduler_type="linear",
        # Random order: grouping by length would pad less, but a resumed run would not see the
        # rows that the killed one had still to see.
        train_sampling_strategy="random",
        data_seed=settings.seed,
        dataloader_pin_memory=torch.cuda.is_available(),
        max_grad_norm=1.0,
        bf16=torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
        seed=settings.seed,
        logging_steps=50,
        save_strategy="steps",
        save_steps=SAVE_STEPS,
        save_total_limit=2,
        report_to=[],
    )
    return Trainer(
        model=model,
        args=arguments,
        train_dataset=examples,
        data_collator=DataCollatorWithPadding(tokenizer),
    )


def _pretrained(name: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(name)
    return AutoModelForSequenceClassification.from_pretrained(name, num_labels=1), tokenizer


def _readable(calibration: Calibration) -> dict[str, Any]:
    thresholds = dataclasses.asdict(calibration.thresholds)
    return {**calibration._asdict(), "thresholds": thresholds}
