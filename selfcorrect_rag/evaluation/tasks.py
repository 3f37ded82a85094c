"""Tasks of an evaluation: the questions of a file or of a data set, with what was left out."""

import hashlib
import heapq
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from selfcorrect_rag.errors import BadArgument, BadTask
from selfcorrect_rag.evaluation.rows import Question
from selfcorrect_rag.evaluation.task_formats import FORMATS, question_of
from selfcorrect_rag.evaluation.task_hubs import hugging_face_rows, langsmith_rows
from selfcorrect_rag.evaluation.task_rows import BadRow, file_rows


class Skipped(NamedTuple):
    """A row that is not asked."""

    place: str
    """``FILE:LINE``, with ``: row NUMBER`` after the first row of a line; ``NAME: row NUMBER`` of a
    data set."""
    reason: str


@dataclass(frozen=True)
class Task:
    """Questions to ask, in the order of their rows."""

    name: str
    """The file's name without its endings, or the name that the data set was read by."""
    questions: tuple[Question, ...]
    skipped: tuple[Skipped, ...]
    """Bad rows, among those that were read."""
    kept_out: tuple[str, ...]
    """Ids of the questions that ``without`` kept out."""
    sample: str
    """Which of the questions these are, in words."""
    fingerprint: str
    """SHA-256 of all that is known of the questions, in hex: the same for the same questions in the
    same order, however their file is written."""


def read_task(
    source: str | Path,
    *,
    format: str | None = None,
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
    seed: int | None = None,
    without: Collection[str] = (),
    strict: bool = False,
) -> Task:
    """The questions of a file, of a Hugging Face data set or of a LangSmith data set.

    Args:
        source: a file (see :func:`~.task_rows.file_rows`); ``hf:NAME``, ``hf:NAME:SPLIT`` or
            ``hf:NAME:CONFIGURATION:SPLIT``; or ``langsmith:NAME``.
        format: of its rows, a key of :data:`~.task_formats.FORMATS`; None: by each row's fields.
        fields: what the rows call ``question``, ``answers``, ``ctxs``, ``id`` and so on, such as
            ``{"question": "prompt"}``; a field not named here keeps its name.
        limit: most questions. They are the first ones, and no more is read.
        seed: with it, ``limit`` questions are drawn at random by their ids: the same ones whatever
            the order of the rows, and those of a smaller ``limit`` are among them.
        without: questions to leave out, as :func:`question_hash` gives them; they count as none of
            ``limit``.
        strict: whether a bad row is an error.

    Raises:
        BadTask: the source cannot be read; with ``strict``, a row is bad.
        BadArgument: an unknown format, or a limit below 1.
        MissingExtra: the data set's library is not installed.
    """
    if format is not None and format not in FORMATS:
        raise BadArgument(f"{format!r} is no format of a task: give one of {', '.join(FORMATS)}")
    if limit is not None and limit < 1:
        raise BadArgument(f"limit is {limit}: give at least 1, or None for all")
    reading = _Reading(without, strict)
    questions = reading.questions(_rows(str(source)), format, fields)
    if limit is None:
        chosen, sample = list(questions), "all"
    elif seed is None:
        chosen, sample = list(islice(questions, limit)), f"the first {limit}"
    else:
        chosen, total = _drawn(questions, limit, seed)
        sample = f"{len(chosen)} of {total}, drawn with seed {seed}"
    return Task(
        _name(str(source)),
        tuple(chosen),
        tuple(reading.skipped),
        tuple(reading.kept_out),
        sample,
        fingerprint(chosen),
    )


def question_hash(question: str) -> str:
    """SHA-256 in hex of a question's words, without case and punctuation: the same for all ways to
    write it down."""
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", question).casefold())
    return _sha256(" ".join(words) or question)


def asked(question: Question) -> str:
    """The question's text with its options below, as Self-RAG asks ARC-Challenge.

    Options that are their own keys, such as true and false, are in the task's instruction. Self-RAG
    writes an empty "D: " below three options; here there is none.
    """
    options = [f"\n{key}: {text}" for key, text in question.choices.items() if key != text]
    return "".join([question.question, *options])


def fingerprint(questions: Iterable[Question]) -> str:
    """SHA-256 of questions, in hex."""
    digest = hashlib.sha256()
    for question in questions:
        passages = question.passages and [
            [passage.page_content, passage.metadata, passage.id] for passage in question.passages
        ]
        known = question._replace(passages=None)._asdict() | {"passages": passages}
        digest.update(json.dumps(known, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()


class _Row(NamedTuple):
    place: str
    value: Any
    fault: str = ""


def _rows(source: str) -> Iterator[_Row]:
    hub, _, name = source.partition(":")
    if hub in _HUBS:
        for number, value in enumerate(_HUBS[hub](name), start=1):
            yield _Row(f"{source}: row {number}", value)
    else:
        line = 0
        for number, row in enumerate(file_rows(Path(source)), start=1):
            of_one_line = f": row {number}" if row.line == line else ""
            yield _Row(f"{source}:{row.line}{of_one_line}", row.value, row.fault)
            line = row.line


_HUBS = {"hf": hugging_face_rows, "langsmith": langsmith_rows}


def _name(source: str) -> str:
    return source if source.partition(":")[0] in _HUBS else Path(source).name.split(".")[0]


@dataclass
class _Reading:
    """Questions out of rows, and what becomes none."""

    without: Collection[str]
    strict: bool
    skipped: list[Skipped] = field(default_factory=list)
    kept_out: list[str] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    """Of the rows read so far, by their ids."""

    def questions(
        self, rows: Iterable[_Row], format: str | None, fields: Mapping[str, str] | None
    ) -> Iterator[Question]:
        for number, row in enumerate(rows, start=1):
            try:
                if row.fault:
                    raise BadRow(row.fault)
                question = question_of(row.value, number, format, fields)
                if question.id in self.places:
                    raise BadRow(f"has the id {question.id!r} of {self.places[question.id]}")
            except BadRow as error:
                if self.strict:
                    raise BadTask(f"{row.place} {error}") from error
                self.skipped.append(Skipped(row.place, str(error)))
                continue
            self.places[question.id] = row.place
            if self.without and question_hash(question.question) in self.without:
                self.kept_out.append(question.id)
            else:
                yield question


def _drawn(questions: Iterable[Question], limit: int, seed: int) -> tuple[list[Question], int]:
    """``limit`` questions, those whose ids hash lowest, in their order; and how many there were."""
    lowest: list[tuple[int, int, Question]] = []  # a heap, with the highest hash at its top
    total = 0
    for question in questions:
        rank = -int(_sha256(f"{seed}\n{question.id}"), 16)
        total += 1
        if len(lowest) < limit:
            heapq.heappush(lowest, (rank, total, question))
        else:
            heapq.heappushpop(lowest, (rank, total, question))
    return [question for _, _, question in sorted(lowest, key=lambda kept: kept[1])], total


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
