"""Fine-tunes CRAG's retrieval evaluator: regression to +1 and -1 (section 4.2, appendix B.2)."""

import dataclasses
import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, NonNegativeInt, model_validator

from selfcorrect_rag.errors import BadTrainingData, require, wrap_disk_full
from selfcorrect_rag.models.checkpoints import loading, max_input_tokens
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, grade, titled
from selfcorrect_rag.models.t5_evaluator import MAX_TOKENS, PairTokenizer, T5Evaluator
from selfcorrect_rag.thresholds import Calibration, Judged, calibrate, measure
from selfcorrect_rag.training.fine_tuning import (
    TuningOptions,
    adapt,
    fine_tune,
    prepare,
    write_report,
)
from selfcorrect_rag.training.rows import (
    Filled,
    Progress,
    Row,
    as_document,
    part_of,
    read_rows,
)

_HEADS = ("classifier", "classification_head", "score", "pooler")
"""Modules that give the score; they start untrained, so beside an adapter they train whole."""


EvaluatorText = Annotated[str, BeforeValidator(lambda given: titled(as_document(given)))]
"""A passage of a row, as an evaluator reads it."""


class EvaluatorOptions(
    TuningOptions,
    model="google-t5/t5-large",
    num_train_epochs=8.0,
    learning_rate=1e-4,
    warmup_ratio=0.0,
    batch_size=12,
    per_device_batch_size=0,
    max_length=MAX_TOKENS,
):
    """Options of ``train evaluator``, the official code's; the model may be any classifier."""

    corpus: Path | None = None
    """JSONL rows {"text": ...} for hard negatives; by default all positives."""
    hard_negatives: NonNegativeInt = 3
    """Negatives of each question that BM25 finds in the corpus."""


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


class _CorpusRow(Row):
    text: EvaluatorText

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, row: Any) -> Any:
        return {"text": row}


def read_graded(path: Path) -> list[Graded]:
    """Read rows ``{"question": ..., "positives": [...], "negatives": [...]}``.

    A passage is a text or ``{"title": ..., "text": ...}``. Rows of one question are merged; a
    passage that is positive in one of them is not a negative of the others.
    """
    merged: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for row in read_rows(path, Graded):
        positives, negatives = merged.setdefault(row.question.strip(), ({}, {}))
        positives |= dict.fromkeys(row.positives)
        negatives |= dict.fromkeys(row.negatives)
    return [
        Graded(
            question=question, positives=tuple(p), negatives=tuple(n for n in given if n not in p)
        )
        for question, (p, given) in merged.items()
    ]


def read_corpus(path: Path) -> list[str]:
    """Read the passages of a JSONL file: ``{"text": ..., "title": ...}`` or strings."""
    return [row.text for row in read_rows(path, _CorpusRow)]


def train_evaluator(
    rows: Sequence[Graded],
    out: Path,
    options: EvaluatorOptions | None = None,
    *,
    corpus: Sequence[str] = (),
    base: tuple[Any, Any] | None = None,
) -> dict[str, Any]:
    """Fine-tune an evaluator and report on questions that it never saw.

    Arguments, resumption and errors are those of every fine-tuning; see
    :mod:`~selfcorrect_rag.training.fine_tuning`. Hard negatives come from ``corpus``, by default
    the positives of all rows. Thresholds are calibrated on development questions and written into
    the result, ``out / "evaluator"``; the report is on test questions.

    Returns:
        ``questions`` by part; the ``calibration``; and of the ``test`` part how many ``pairs``, the
        ``auc`` and what the thresholds do (``actions``).
    """
    options = options or EvaluatorOptions()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise BadTrainingData("an evaluator is trained by one process; launch only one")
    run_id = prepare(out, options, [*rows, *corpus])
    parts = split_graded(rows, corpus, options.hard_negatives)
    for name, of_part in parts.items():
        if {label for row in of_part for _, label in row.pairs} != {1.0, -1.0}:
            raise BadTrainingData(
                f"the {name} part ({len(of_part)} questions) needs relevant and irrelevant passages"
            )
    from transformers import DataCollatorWithPadding

    model, tokenizer = base or _load(options.model)
    _check_end(model, tokenizer, options.model)
    model.config.problem_type = "regression"
    model.config.pad_token_id = tokenizer.pad_token_id
    model = adapt(model, options, "SEQ_CLS", heads=_HEADS)
    limit = max_input_tokens(model, options.max_length)
    pairs = PairTokenizer(tokenizer, separator=None, max_tokens=limit)
    labelled = [(row.question, text, label) for row in parts["train"] for text, label in row.pairs]
    encoded = pairs.encode([(question, text) for question, text, _ in labelled])
    examples = [{**e, "labels": label} for e, (_, _, label) in zip(encoded, labelled, strict=True)]
    fine_tune(model, examples, DataCollatorWithPadding(tokenizer), out, options, run_id)
    if options.lora_rank:
        model.save_pretrained(out / "adapter")
        model = model.merge_and_unload()
    evaluator = T5Evaluator(model, tokenizer, max_tokens=options.max_length)
    calibration = calibrate(judge_questions(evaluator, parts["development"]))
    evaluator.thresholds = calibration.thresholds
    model.config.crag_thresholds = [calibration.thresholds.upper, calibration.thresholds.lower]
    with wrap_disk_full(out):
        model.save_pretrained(out / "evaluator")
        tokenizer.save_pretrained(out / "evaluator")
    scored = [pair for row in parts["test"] for pair in _scores(evaluator, row)]
    actions = measure(judge_questions(evaluator, parts["test"]), evaluator.thresholds)
    report = {
        "questions": {name: len(of_part) for name, of_part in parts.items()},
        "calibration": _as_json(calibration),
        "test": {"pairs": len(scored), "auc": auc(scored), "actions": _as_json(actions)},
    }
    return write_report(out, report)


def split_graded(rows: Sequence[Graded], corpus: Sequence[str], k: int) -> dict[str, list[Graded]]:
    """The rows by part, each with up to ``k`` hard negatives more.

    Those of the training part are not among what is relevant to a held-out question.
    """
    corpus = corpus or [passage for row in rows for passage in row.positives]
    held_out = {p for row in rows if part_of(row.question) != "train" for p in row.positives}
    parts = {}
    for name in ("train", "development", "test"):
        allowed = [p for p in corpus if name != "train" or p not in held_out]
        parts[name] = mine_negatives([r for r in rows if part_of(r.question) == name], allowed, k)
    return parts


def mine_negatives(rows: Sequence[Graded], corpus: Sequence[str], k: int) -> list[Graded]:
    """Add up to ``k`` negatives to each row: the passages that BM25 ranks highest and that are not
    known to be relevant. A passage that equals a positive, or is part of one, is not a negative."""
    passages = [passage for passage in dict.fromkeys(corpus) if passage.strip()]
    if not rows or not passages or not k:
        return list(rows)
    bm25s, quiet = require("bm25s", "train"), {"show_progress": False}
    words = bm25s.tokenize(passages, stopwords="en", **quiet)
    if not words.vocab:  # nothing but stop words
        return list(rows)
    index = bm25s.BM25()
    index.index(words, **quiet)
    queries = bm25s.tokenize([row.question for row in rows], stopwords="en", **quiet)
    wanted = k + max(len(row.pairs) for row in rows)  # the positives are among the best
    found, _ = index.retrieve(queries, k=min(wanted, len(passages)), **quiet)
    mined = []
    for row, best in zip(rows, found.tolist(), strict=True):
        near = [passages[i] for i in best if passages[i] not in row.negatives]
        hard = [n for n in near if not any(p in n or n in p for p in row.positives)]
        mined.append(row.model_copy(update={"negatives": (*row.negatives, *hard[:k])}))
    return mined


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
    below, wins = 0.0, 0.0
    for _, group in groupby(sorted(scored), key=lambda pair: pair[0]):
        labels = [label > 0 for _, label in group]
        negatives = len(labels) - sum(labels)
        wins += sum(labels) * (below + negatives / 2)
        below += negatives
    return wins / (below * (len(scored) - below))


def _scores(evaluator: RetrievalEvaluator, row: Graded) -> list[tuple[float, float]]:
    texts, labels = zip(*row.pairs, strict=True)
    return list(zip(grade(evaluator, row.question, texts), labels, strict=True))


def _as_json(calibration: Calibration) -> dict[str, Any]:
    thresholds = dataclasses.asdict(calibration.thresholds)
    return {**calibration._asdict(), "thresholds": thresholds}


def _load(name: str) -> tuple[Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    with loading(name):
        tokenizer = AutoTokenizer.from_pretrained(name)
        # Under an adapter the head trains whole, which hardly moves in bfloat16.
        model = AutoModelForSequenceClassification.from_pretrained(
            name, num_labels=1, dtype="float32"
        )
    return model, tokenizer


def _check_end(model: Any, tokenizer: Any, name: str) -> None:
    """A decoder is read at the last token that is not padding, a T5 at its end token."""
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    is_read_at_end = model.config.is_encoder_decoder
    if tokenizer.pad_token is None or (
        is_read_at_end and tokenizer("a")["input_ids"][-1:] != [tokenizer.eos_token_id]
    ):
        raise BadTrainingData(
            f"the tokenizer of {name} adds no end token (eos_token), at which the score is read; "
            "give a base whose tokenizer does, such as google-t5/t5-large"
        )


def run(data: Path, out: Path, options: EvaluatorOptions, progress: Progress) -> dict[str, Any]:
    """Fine-tune an evaluator on a file; see :func:`train_evaluator`."""
    corpus = read_corpus(options.corpus) if options.corpus else ()
    return train_evaluator(read_graded(data), out, options, corpus=corpus)
