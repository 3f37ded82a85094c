"""Fine-tunes CRAG's retrieval evaluator: regression to +1 and -1 (section 4.2, appendix B.2)."""

import dataclasses
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadTrainingData, require, wrap_disk_full
from selfcorrect_rag.evaluation.pooled import auc
from selfcorrect_rag.models.checkpoints import loading, max_input_tokens
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, grade, titled
from selfcorrect_rag.models.t5_evaluator import MAX_TOKENS, PairTokenizer, T5Evaluator
from selfcorrect_rag.thresholds import Calibration, Judged, calibrate, measure
from selfcorrect_rag.training.fine_tuning import (
    RunOptions,
    TrainingSettings,
    adapted,
    fine_tune,
    option,
    prepare,
    processes,
    write_report,
)
from selfcorrect_rag.training.rows import Part, lines, part_of, read_text

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class GradedRow:
    """A question and passages known to be relevant to it, or not."""

    question: str
    positives: tuple[str, ...] = ()
    negatives: tuple[str, ...] = ()

    @property
    def part(self) -> Part:
        """Which part of the data it belongs to."""
        return part_of(self.question)

    @property
    def labelled(self) -> Iterator[tuple[str, float]]:
        """Its passages with the paper's labels, +1 and -1 (CRAG appendix B.2)."""
        yield from ((passage, 1.0) for passage in self.positives)
        yield from ((passage, -1.0) for passage in self.negatives)


def read_graded(path: Path) -> list[GradedRow]:
    """Rows ``{"question": ..., "positives": [...], "negatives": [...]}`` of a JSONL file.

    A passage is a text, or ``{"title": ..., "text": ...}``, and is read as an evaluator reads it
    (:func:`~selfcorrect_rag.models.retrieval_evaluator.titled`). Rows of one question are put
    together; a passage that is positive in one of them is no negative of the others.

    Raises:
        BadTrainingData: the file or a row is not so, a passage is blank, or one is both positive
            and negative in a row; the message names the line.
    """
    rows: dict[str, tuple[list[str], list[str]]] = {}
    for number, line in lines(read_text(path)):
        try:
            row = json.loads(line)
            question, lists = row["question"], (row.get("positives"), row.get("negatives"))
            good = isinstance(question, str) and question.strip()
            found = [_passages(given) for given in lists]
        except (ValueError, KeyError, TypeError, AttributeError):
            good = ""
        if not good or not any(found):
            raise BadTrainingData(
                f'{path}:{number}: not {{"question": ..., "positives": [...], "negatives": [...]}}'
            )
        if not all(passage.strip() for passages in found for passage in passages):
            raise BadTrainingData(f"{path}:{number}: a passage is blank")
        if not set(found[0]).isdisjoint(found[1]):
            raise BadTrainingData(f"{path}:{number}: a passage is both positive and negative")
        kept = rows.setdefault(question.strip(), ([], []))
        for passages, more in zip(kept, found, strict=True):
            passages += [passage for passage in more if passage not in passages]
    return [
        GradedRow(question, tuple(p), tuple(passage for passage in n if passage not in p))
        for question, (p, n) in rows.items()
    ]


def read_corpus(path: Path) -> list[str]:
    """Passages of a JSONL file: rows ``{"text": ..., "title": ...}`` or strings, read as those of
    :func:`read_graded`.

    Raises:
        BadTrainingData: the file or a row is not so.
    """
    passages = []
    for number, line in lines(read_text(path)):
        try:
            passages += _passages([json.loads(line)])
        except (ValueError, KeyError, TypeError) as error:
            raise BadTrainingData(f'{path}:{number}: not {{"text": ...}}') from error
    return passages


def _passages(given: Any) -> list[str]:
    """A list of texts, or of texts with titles; ValueError or the like where it is none."""
    given = given or []
    if not isinstance(given, list):
        raise TypeError
    passages = []
    for one in given:
        text, title = (one, None) if isinstance(one, str) else (one["text"], one.get("title"))
        if not isinstance(text, str):
            raise TypeError
        passages.append(titled(Document(text, metadata={"title": title})))
    return passages


def parted(rows: Sequence[GradedRow], corpus: Sequence[str], k: int) -> dict[Part, list[GradedRow]]:
    """The rows by part, with up to ``k`` hard negatives more each.

    Those of the training part are none of what is relevant to a question held out from it.

    Args:
        rows: all of them.
        corpus: where negatives are looked for; the positives of all rows by default.
        k: see :func:`mine_negatives`.

    Raises:
        BadTrainingData: ``k`` is below 0.
    """
    corpus = corpus or [passage for row in rows for passage in row.positives]
    held_out = {p for row in rows if row.part != "train" for p in row.positives}
    open_to: dict[Part, Sequence[str]] = {
        "train": [passage for passage in corpus if passage not in held_out],
        "development": corpus,
        "test": corpus,
    }
    return {
        part: mine_negatives([row for row in rows if row.part == part], passages, k)
        for part, passages in open_to.items()
    }


def mine_negatives(rows: Sequence[GradedRow], corpus: Sequence[str], k: int) -> list[GradedRow]:
    """The rows with up to ``k`` hard negatives more each: passages of the corpus that look right
    to BM25, the likest first, and are not known to be.

    A passage that is blank, equals a positive, holds one or is part of one is no negative.

    Raises:
        BadTrainingData: ``k`` is below 0.
    """
    if k < 0:
        raise BadTrainingData(f"hard negatives {k}: it must be 0 or more")
    bm25s = require("bm25s", "bm25")
    passages = [passage for passage in dict.fromkeys(corpus) if passage.strip()]
    if not rows or not passages or not k:
        return list(rows)
    quiet = {"show_progress": False}
    words = bm25s.tokenize(passages, stopwords="en", **quiet)
    if not words.vocab:  # nothing but stop words: nothing looks like anything
        return list(rows)
    index = bm25s.BM25()
    index.index(words, **quiet)
    queries = bm25s.tokenize([row.question for row in rows], stopwords="en", **quiet)
    # More than k, since the positives are among the best.
    wanted = k + max(len(row.positives) + len(row.negatives) for row in rows)
    found, _ = index.retrieve(queries, k=min(wanted, len(passages)), **quiet)
    mined = []
    for row, best in zip(rows, found.tolist(), strict=True):
        near = [passages[i] for i in best if passages[i] not in row.negatives]
        positives = [p for p in row.positives if p.strip()]  # a blank one is part of any passage
        hard = [n for n in near if not any(p in n or n in p for p in positives)]
        mined.append(GradedRow(row.question, row.positives, (*row.negatives, *hard[:k])))
    return mined


_HEADS = ("classifier", "classification_head", "score", "pooler")
"""Modules that give the score: newly initialised, so trained whole beside an adapter."""


@dataclass(frozen=True)
class EvaluatorSettings(TrainingSettings):
    """Settings of an evaluator; defaults are the official code's."""

    model: str = option(
        "google-t5/t5-large",
        "folder or hub name of the base model: a T5, or any that classifies sequences",
        "NAME",
    )
    num_train_epochs: float = 8.0
    learning_rate: float = 1e-4
    warmup_ratio: float = 0.0
    batch_size: int = 12
    per_device_batch_size: int = 0
    max_length: int = MAX_TOKENS
    hard_negatives: int = option(
        3, "hard negatives that BM25 finds in the corpus for each question, 0 or more", "PASSAGES"
    )


def train_evaluator(
    rows: Sequence[GradedRow],
    out: Path,
    settings: EvaluatorSettings | None = None,
    run_options: RunOptions | None = None,
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
        out: folder of checkpoints, the result (``evaluator``; where an adapter was trained, with
            it merged, and alone as ``adapter``) and ``report.json``.
        settings: see :class:`EvaluatorSettings`.
        run_options: see :class:`~selfcorrect_rag.training.fine_tuning.RunOptions`.
        corpus: where hard negatives are looked for; the positives of all rows by default.
        base: a model and its tokenizer to begin from, in place of ``settings.model``.

    Raises:
        MissingExtra: torch, transformers, accelerate or peft is not installed.
        ModelNotFound: ``settings.model`` cannot be loaded.
        BadTrainingData: there are several processes, or a part of the data has no question, or
            labels of one kind only; see also
            :func:`~selfcorrect_rag.training.fine_tuning.prepare`.
    """
    settings, run_options = settings or EvaluatorSettings(), run_options or RunOptions()
    if processes() > 1:
        raise BadTrainingData("an evaluator is trained by one process: launch it without others")
    run = prepare(out, settings, [*rows, *corpus])
    parts = parted(rows, corpus, settings.hard_negatives)
    for name, of_part in parts.items():
        labels = {label for row in of_part for _, label in row.labelled}
        if labels != {1.0, -1.0}:
            raise BadTrainingData(
                f"the {name} part ({len(of_part)} questions) needs relevant and irrelevant passages"
            )
    from transformers import DataCollatorWithPadding

    model: Any
    model, tokenizer = base or _pretrained(settings)
    model.config.problem_type = "regression"
    # A decoder is read at the last token that is no padding, and often has no token for that.
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model.config.pad_token_id = tokenizer.pad_token_id
    model = adapted(model, settings, "SEQ_CLS", whole=_HEADS)
    labelled = _examples(
        tokenizer, parts["train"], settings, max_input_tokens(model, settings.max_length)
    )
    collate = DataCollatorWithPadding(tokenizer)
    fine_tune(model, labelled, collate, out, settings, run_options, run=run, in_order=True)
    if settings.lora_rank:
        model.save_pretrained(out / "adapter")
        model = model.merge_and_unload()
    evaluator = T5Evaluator(model, tokenizer, max_tokens=settings.max_length)
    calibration = calibrate(judged(evaluator, parts["development"]))
    evaluator.thresholds = calibration.thresholds
    model.config.crag_thresholds = [calibration.thresholds.upper, calibration.thresholds.lower]
    with wrap_disk_full(out):
        model.save_pretrained(out / "evaluator")
        tokenizer.save_pretrained(out / "evaluator")
    report = {
        "questions": {name: len(of_part) for name, of_part in parts.items()},
        "calibration": readable(calibration),
        "test": held_out_report(evaluator, parts["test"]),
    }
    write_report(out, report)
    return report


def held_out_report(evaluator: RetrievalEvaluator, rows: Sequence[GradedRow]) -> dict[str, Any]:
    """How well pairs and whole retrievals of ``rows`` are judged.

    AUC and best accuracy over pairs, against the base rate of always saying the commoner label;
    then what the evaluator's thresholds do on whole retrievals.
    """
    by_question = [_scored(evaluator, row) for row in rows]
    scored = [pair for pairs in by_question for pair in pairs]
    positives = sum(label > 0 for _, label in scored) / len(scored)
    return {
        "pairs": len(scored),
        "auc": auc(scored),
        "best_accuracy": _best_accuracy(scored),
        "base_rate": max(positives, 1 - positives),
        "actions": readable(measure(_judged(by_question), evaluator.thresholds)),
    }


def judged(evaluator: RetrievalEvaluator, rows: Sequence[GradedRow]) -> list[Judged]:
    """Each question twice: with all its passages, and with its irrelevant ones alone."""
    return _judged([_scored(evaluator, row) for row in rows])


def _judged(by_question: Sequence[Sequence[tuple[float, float]]]) -> list[Judged]:
    found = []
    for scored in by_question:
        wrong = [score for score, label in scored if label < 0]
        if len(wrong) < len(scored):
            found.append(Judged([score for score, _ in scored], relevant=True))
        if wrong:
            found.append(Judged(wrong, relevant=False))
    return found


def readable(calibration: Calibration) -> dict[str, Any]:
    """A calibration of JSON values only."""
    thresholds = dataclasses.asdict(calibration.thresholds)
    return {**calibration._asdict(), "thresholds": thresholds}


def _scored(evaluator: RetrievalEvaluator, row: GradedRow) -> list[tuple[float, float]]:
    passages, labels = zip(*row.labelled, strict=True)
    return list(zip(grade(evaluator, row.question, passages), labels, strict=True))


def _best_accuracy(scored: Sequence[tuple[float, float]]) -> float:
    """Accuracy of the threshold that fits these pairs best."""
    right = sum(label < 0 for _, label in scored)  # all called irrelevant
    best = right
    ordered = sorted(scored, reverse=True)
    for i, (score, label) in enumerate(ordered):
        right += 1 if label > 0 else -1
        if i + 1 == len(ordered) or ordered[i + 1][0] != score:
            best = max(best, right)
    return best / len(scored)


def _examples(
    tokenizer: "PreTrainedTokenizerBase",
    rows: Sequence[GradedRow],
    settings: EvaluatorSettings,
    longest: int,
) -> list[dict[str, Any]]:
    """Pairs read as the evaluator will read them, down to the ids, in the order to be shown."""
    labelled = [(row.question, passage, label) for row in rows for passage, label in row.labelled]
    pairs = PairTokenizer(tokenizer, separator=None, max_tokens=longest)
    encoded = pairs.encode([(question, passage) for question, passage, _ in labelled])
    examples = [
        {**ids, "labels": label} for ids, (_, _, label) in zip(encoded, labelled, strict=True)
    ]
    return _like_lengths_together(examples, settings.batch_size, settings.seed)


def _pretrained(
    settings: EvaluatorSettings,
) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    name = settings.model
    with loading(name):
        tokenizer = AutoTokenizer.from_pretrained(name)
        # Also under an adapter, which trains the head whole: in bfloat16 that would hardly move.
        model = AutoModelForSequenceClassification.from_pretrained(
            name, num_labels=1, dtype="float32"
        )
    return model, tokenizer


def _like_lengths_together(
    examples: list[dict[str, Any]], batch_size: int, seed: int
) -> list[dict[str, Any]]:
    """The examples in random order, but such that a batch pads little.

    Stretches of fifty batches are sorted by length and their batches shuffled. The Trainer's own
    sampler for this draws anew when a run is resumed, and would show some rows twice.
    """
    chance = random.Random(seed)
    examples = chance.sample(examples, len(examples))
    ordered: list[dict[str, Any]] = []
    for start in range(0, len(examples), 50 * batch_size):
        near = sorted(examples[start : start + 50 * batch_size], key=lambda e: len(e["input_ids"]))
        batches = [near[i : i + batch_size] for i in range(0, len(near), batch_size)]
        last = (
            [batches.pop()] if len(batches[-1]) < batch_size else []
        )  # or it would shift the others
        for each in chance.sample(batches, len(batches)) + last:
            ordered += each
    return ordered
