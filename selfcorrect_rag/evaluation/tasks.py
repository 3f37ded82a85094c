"""Questions of an evaluation: the papers' task files, JSONL, JSON, CSV, TSV, hub data sets.

Files are untrusted: a row that cannot be used is skipped and named, and the others are read.
"""

import csv
import gzip
import hashlib
import io
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.errors import (
    BadArgument,
    BadTask,
    describe_error,
    one_line,
    require,
    safe_message,
)

MAX_FILE, MAX_CELL = 2**31, 2**24
"""Bytes of a JSON file after decompression, and characters of one cell of a table."""

IDS = ("id", "_id", "qid", "question_id", "sample_id", "claim_id")
QUESTIONS = ("question", "query", "user_input", "ambiguous_question", "QUESTION")
ANSWERS = ("answers", "golden_answers", "possible_answers", "answer", "reference", "ground_truth")
PASSAGES = (
    *("ctxs", "docs", "paragraphs", "passages", "contexts", "retrieved_contexts"),
    *("retrieval_result", "context", "passage", "CONTEXTS"),
)
TEXTS = ("text", "paragraph_text", "contents", "page_content", "content", "passage")
"""Names that data sets give to one field; the first that a row has counts."""
RELEVANT = ("is_supporting", "isgold", "is_gold", "hasanswer", "has_answer")
"""Fields of a passage that say whether it holds the answer."""


class Question(NamedTuple):
    """A question of a task, with what is known about it."""

    id: str
    """Unique within the task."""
    question: str
    answers: tuple[str, ...] = ()
    """Accepted answers; empty if the task has none, or if a refusal is right."""
    passages: tuple[Document, ...] | None = None
    """The passages that came with it, best first; None: they are retrieved."""
    task: str = ""
    """Key of its instruction in ``TASK_INSTRUCTIONS`` of Self-RAG's or InstructRAG's prompts."""
    choices: Mapping[str, str] = {}
    """Options of a closed set: text by key."""
    extra: Mapping[str, Any] = {}
    """The row's other fields (``qa_pairs``, ``annotations``, ...), and ``relevant``: a boolean for
    each passage, if the row labels them."""
    unanswerable: bool = False
    """Whether a refusal is right."""


class Format(NamedTuple):
    """How the rows of a data set are read."""

    sign: str = ""
    """The field by which its rows are recognised."""
    task: str = ""
    question: tuple[str, ...] = QUESTIONS
    answers: tuple[str, ...] = ANSWERS
    labels: Mapping[str, str] = {}
    """For a closed set: the label in the file (lower case) and the option it means."""


YES_NO = {"yes": "yes", "no": "no", "true": "yes", "false": "no"}
TRUTH = {"true": "true", "false": "false", "supports": "true", "refutes": "false"}
FORMATS: Mapping[str, Format] = {
    "arc": Format("choices", "arc", answers=("answerKey", *ANSWERS)),
    "asqa": Format("qa_pairs", "asqa", answers=()),
    "eli5": Format("claims", "eli5", answers=()),
    "pubhealth": Format("claim", "pubhealth", ("claim", *QUESTIONS), (*ANSWERS, "label"), TRUTH),
    "pubmedqa": Format(
        "final_decision", "", answers=("final_decision",), labels={**YES_NO, "maybe": "maybe"}
    ),
    "popqa": Format("s_wiki_title", "popqa"),
    "triviaqa": Format("question_source", "triviaqa"),
    "nq": Format("nq_annotated_gold", "nq"),
    "2wikimultihopqa": Format("evidences", "2wikimultihopqa"),
    "bio": Format("topic"),
    "yes-no": Format(labels=YES_NO),
    "qa": Format(),
}
"""The formats by name. ``bio`` and ``yes-no`` have further conditions, see :func:`find_format`."""
BIOGRAPHY = "Tell me a bio of {topic}."
"""The prompt of FActScore (Min et al., 2023, section 3.4.1)."""


class Skipped(NamedTuple):
    """A row that is not asked."""

    place: str
    """``FILE:LINE`` of lines and tables, else ``NAME: row NUMBER``."""
    reason: str


class Task(NamedTuple):
    """Questions to ask, in the order of their rows."""

    name: str
    questions: tuple[Question, ...]
    skipped: tuple[Skipped, ...]
    fingerprint: str
    """SHA-256 of the questions, in hex, whatever file format they were read from."""


class BadRow(ValueError):
    """A row that is not a question; the message follows the row's place."""


def read_task(
    source: str | Path,
    *,
    format: str | None = None,
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Task:
    """Read the questions of a file or of a Hugging Face data set.

    Args:
        source: a file (see :func:`read_rows`), or ``hf:NAME[:SPLIT]``,
            ``hf:NAME:CONFIGURATION:SPLIT``.
        format: a key of :data:`FORMATS`; None: by each row's fields.
        fields: the row's names of our fields, such as ``{"question": "prompt"}``.
        limit: maximum number of questions, the first ones; no more is read.

    Raises:
        BadTask: the source cannot be read.
        BadArgument: an unknown format, or a limit below 1.
        MissingExtra: ``datasets`` is not installed.
    """
    if format is not None and format not in FORMATS:
        raise BadArgument(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    if limit is not None and limit < 1:
        raise BadArgument(f"limit must be at least 1, got {limit}")
    questions: dict[str, Question] = {}
    skipped: list[Skipped] = []
    for number, (place, row) in enumerate(read_rows(source), start=1):
        try:
            question = question_of(row, number, format, fields)
            if question.id in questions:
                raise BadRow(f"has the id {question.id!r} of an earlier row")
            questions[question.id] = question
        except BadRow as error:
            skipped.append(Skipped(place, str(error)))
        if len(questions) == limit:
            break
    name = str(source) if str(source).startswith("hf:") else Path(source).name.split(".")[0]
    chosen = tuple(questions.values())
    return Task(name, chosen, tuple(skipped), fingerprint(chosen))


def question_hash(question: str) -> str:
    """Hash a question's words without case and punctuation: SHA-256 in hex."""
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", question).casefold())
    return hashlib.sha256((" ".join(words) or question).encode(errors="replace")).hexdigest()


def fingerprint(questions: Iterable[Question]) -> str:
    """Hash questions with all that is known of them: SHA-256 in hex."""
    digest = hashlib.sha256()
    for question in questions:
        passages = [[p.page_content, p.metadata] for p in question.passages or ()]
        known = {**question._asdict(), "passages": passages}
        digest.update(json.dumps(known, sort_keys=True, default=str).encode() + b"\n")
    return digest.hexdigest()


def asked(question: Question) -> str:
    """The question's text with its lettered options below, as Self-RAG asks ARC-Challenge."""
    options = [f"\n{key}: {text}" for key, text in question.choices.items() if key != text]
    return "".join([question.question, *options])


# Rows of files


def read_rows(source: str | Path) -> Iterator[tuple[str, object]]:
    """Yield each row of a source with its place; of an unreadable row, a :class:`BadRow`.

    Files are plain or gzipped UTF-8: JSON lines; a JSON list; a JSON object with the list under
    ``data`` (ALCE), or with rows by id; ``.csv`` and ``.tsv`` with named columns.

    Raises:
        BadTask: there is no such file or data set, or it is of another kind.
    """
    if str(source).startswith("hf:"):
        yield from _hub_rows(str(source))
        return
    path = Path(source)
    try:
        with path.open("rb") as file:
            start = file.peek(4)[:4]
            if start.startswith((b"PAR1", b"PK\x03\x04", b"%PDF", b"\xff\xfe", b"\xfe\xff")):
                raise BadTask(f"{path} is not UTF-8 text: save it as JSON lines or CSV in UTF-8")
            zipped = start.startswith(b"\x1f\x8b")
            content: Any = gzip.GzipFile(fileobj=file) if zipped else file
            read = _table_rows if {".csv", ".tsv"} & set(path.suffixes) else _json_rows
            yield from read(path, content)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadTask(f"cannot read {path}: {safe_message(error)}") from error


def _json_rows(path: Path, content: Any) -> Iterator[tuple[str, object]]:
    text = content.read(MAX_FILE + 1).removeprefix(b"\xef\xbb\xbf")
    if len(text) > MAX_FILE:
        raise BadTask(f"{path} is longer than {MAX_FILE:,} bytes: give a part of it")
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        if text.lstrip().startswith(b"["):
            raise BadTask(f"{path} is not JSON: {safe_message(error)}") from error
        for number, line in enumerate(text.splitlines(), start=1):
            if line.strip():
                yield f"{path}:{number}", _json_row(line)
        return
    if isinstance(rows, Mapping) and isinstance(rows.get("data"), list):
        rows = rows["data"]
    elif isinstance(rows, Mapping) and all(isinstance(row, Mapping) for row in rows.values()):
        rows = [{"id": key, **row} for key, row in rows.items()]
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
        yield f"{path}: row {number}", row


def _json_row(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadRow(f"is not JSON ({safe_message(error)})")


def _table_rows(path: Path, content: Any) -> Iterator[tuple[str, object]]:
    csv.field_size_limit(MAX_CELL)  # Python's own, 128 KiB, is less than ten passages
    text = io.TextIOWrapper(io.BufferedReader(content), "utf-8-sig", newline="")
    first = text.readline()
    delimiter = "\t" if ".tsv" in path.suffixes else max(",;\t", key=first.count)
    names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
    if len(set(names)) < len(names):
        raise BadTask(f"{path} has two columns of one name: rename one")
    table = csv.DictReader(text, names, restkey="more cells", delimiter=delimiter, strict=True)
    try:
        for row in table:
            row.pop("", None)  # pandas writes the number of the row under no name
            wide = "more cells" in row
            place = f"{path}:{table.line_num + 1}"
            yield place, BadRow("has too many cells") if wide else row
    except csv.Error as error:
        raise BadTask(f"{path}:{table.line_num + 1}: {error}") from error


def _hub_rows(source: str) -> Iterator[tuple[str, object]]:
    """Stream a Hugging Face data set; the split is ``test`` if none is named."""
    name, *rest = source.removeprefix("hf:").split(":")
    if not name or len(rest) > 2 or not all(rest):
        raise BadTask(f"{source}: write hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIGURATION:SPLIT")
    configuration, split = (rest[0] if len(rest) == 2 else None), (rest[-1] if rest else "test")
    datasets = require("datasets", "eval")
    try:
        rows = datasets.load_dataset(name, configuration, split=split, streaming=True)
        for number, row in enumerate(rows, start=1):
            yield f"{source}: row {number}", row
    except Exception as error:  # each library below raises its own
        raise BadTask(f"cannot read split {split} of {name}: {describe_error(error)}") from error


# A row as a question


def find_format(row: Mapping[str, Any]) -> str:
    """The format of a row, by its fields."""
    if isinstance(row.get("question"), Mapping):
        return "arc"
    has_answer = any(row.get(field) is not None for field in ANSWERS)
    for name, form in FORMATS.items():
        if form.sign and row.get(form.sign) and not (name == "bio" and has_answer):
            return name
    return "yes-no" if isinstance(row.get("answer"), bool) else "qa"


def question_of(
    row: object, number: int, format: str | None = None, fields: Mapping[str, str] | None = None
) -> Question:
    """Read a row as a question; one without an id becomes ``row-NUMBER``.

    Raises:
        BadRow: it is not a question of this format.
    """
    if isinstance(row, BadRow):
        raise row
    if not isinstance(row, Mapping):
        raise BadRow(f"is not a JSON object but {_shown(row)}")
    row = {**row, **{ours: row[theirs] for ours, theirs in (fields or {}).items() if theirs in row}}
    if "golden_answers" in row and isinstance(row.get("metadata"), Mapping):
        row = {**row.pop("metadata"), **row}  # FlashRAG keeps the other fields there
    name = format or find_format(row)
    form = FORMATS[name]
    if isinstance(stem := row.get("question"), Mapping):  # ARC's first release
        row |= {"choices": stem.get("choices"), "question": stem.get("stem")}
    if name == "bio":
        row.setdefault("question", BIOGRAPHY.format(topic=row.get("topic")))
    question_field, question = _first(row, form.question)
    if not isinstance(question, str) or not question.strip():
        raise BadRow("has no question")
    id_field, identity = _first(row, IDS)
    if isinstance(identity, bool) or not isinstance(identity, str | int | None):
        raise BadRow(f"has {_shown(identity)} as its id")
    answer_field, given = _first(row, form.answers)
    choices: Mapping[str, str] = {option: option for option in form.labels.values()}
    if name == "arc":
        answers, choices = _read_choices(row.get("choices"), given)
    elif name == "asqa":
        pairs = row.get("qa_pairs")
        if not isinstance(pairs, list) or not all(isinstance(pair, Mapping) for pair in pairs):
            raise BadRow("has no list of qa_pairs")
        answers = flatten([pair.get("short_answers") or pair.get("answers") for pair in pairs])
    else:
        answers = [*flatten(given), *flatten(row.get("answer_aliases") if form.answers else None)]
    if form.labels:
        if unknown := [each for each in answers if each.lower() not in form.labels]:
            raise BadRow(f"has {_shown(unknown[0])}, which is not one of {', '.join(form.labels)}")
        answers = [form.labels[answer.lower()] for answer in answers]
    passage_field, passages, relevant = _read_passages(row)
    read = {question_field, id_field, answer_field, passage_field, "choices"}
    refuse = str(row.get("answerable")).lower() == "false" or "true" in (
        str(row.get(flag)).lower() for flag in ("is_impossible", "unanswerable")
    )
    return Question(
        str("" if identity is None else identity).strip() or f"row-{number}",
        question.strip(),
        () if refuse else tuple(dict.fromkeys(answer for answer in answers if answer.strip())),
        passages,
        form.task,
        choices,
        {**{k: v for k, v in row.items() if k not in read}, **relevant},
        refuse,
    )


def _first(row: Mapping[str, Any], names: Iterable[str]) -> tuple[str, Any]:
    """Name and value of the first of these fields that is not null."""
    return next(((name, row[name]) for name in names if row.get(name) is not None), ("", None))


def flatten(given: Any) -> list[str]:
    """Accepted answers as a flat list: from a text, number, boolean, list, list written as JSON
    text, or the mappings of TriviaQA (``value``, ``aliases``) and SQuAD (``text``)."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise BadRow(f"has {_shown(given)} as its answers, which is not a JSON list") from error
    match given:
        case None:
            return []
        case str() | int() | float():
            return [str(given)]
        case list() | tuple():
            return [answer for each in given for answer in flatten(each)]
        case {"value": _} | {"aliases": _} | {"text": _}:
            return flatten([given.get("value"), given.get("aliases"), given.get("text")])
    raise BadRow(f"has {_shown(given)} as an answer")


def _read_choices(given: Any, answer: Any) -> tuple[list[str], Mapping[str, str]]:
    """Answers and options with letters, as Self-RAG writes ARC: keys 1 to 4 become A to D.

    Options are a mapping, ``{"label": [..], "text": [..]}``, a list of ``{"label", "text"}``, or a
    list of texts; answers are keys, texts, or numbers from 0.
    """
    match given:
        case {"label": [*keys], "text": [*texts]}:
            pairs = list(zip(keys, texts, strict=False))
        case {**options} if options:
            pairs = list(options.items())
        case [{}, *_] if all(isinstance(item, Mapping) for item in given):
            pairs = [(item.get("label"), item.get("text")) for item in given]
        case [*texts]:
            pairs = [(chr(ord("A") + place), text) for place, text in enumerate(texts[:26])]
        case _:
            pairs = []
    if len(dict(pairs)) < 2 or not all(isinstance(part, str) for pair in pairs for part in pair):
        raise BadRow("has no two or more choices with keys and texts")
    keys = list(dict(pairs))
    numbered = keys == [str(place) for place in range(1, len(keys) + 1)]
    letters = {key: chr(ord("A") + i) if numbered else key for i, key in enumerate(keys)}
    names = {key: key for key in keys}
    names = {**{str(i): k for i, k in enumerate(keys)}, **{t: k for k, t in pairs}, **names}
    answers = flatten(None if answer == "" else answer)
    if unknown := [each for each in answers if each not in names]:
        raise BadRow(f"has the answer {_shown(unknown[0])}, which is not one of {', '.join(keys)}")
    return [letters[names[each]] for each in answers], {letters[k]: t for k, t in pairs}


def _read_passages(
    row: Mapping[str, Any],
) -> tuple[str, tuple[Document, ...] | None, dict[str, Any]]:
    """The field, its passages, and ``relevant`` if the row labels each of them."""
    field, given = _first(row, PASSAGES)
    if isinstance(given, str):
        given = [{"text": given, "title": row.get("title")}]
    if isinstance(given, Mapping) and isinstance(given.get("title"), list):  # HotpotQA on the hub
        given = list(
            zip(given["title"], given.get("sentences", given.get("content")), strict=False)
        )
    if given is None:
        return "", None, {}
    if not isinstance(given, list | tuple):
        raise BadRow(f"has {_shown(given)} as its passages")
    passages = tuple(map(_read_passage, given))
    facts = row.get("supporting_facts")
    titles = facts.get("title") if isinstance(facts, Mapping) else [f[0] for f in facts or () if f]
    if titles:
        return field, passages, {"relevant": [p.metadata.get("title") in titles for p in passages]}
    for flag in RELEVANT:
        labels = [each.get(flag) if isinstance(each, Mapping) else None for each in given]
        if labels and all(isinstance(label, bool) for label in labels):
            return field, passages, {"relevant": labels}
    return field, passages, {}


def _read_passage(given: Any) -> Document:
    known: dict[str, Any] = {}
    match given:
        case str():
            known = {"text": given}
        case [str(title), [*sentences]] if all(isinstance(s, str) for s in sentences):
            known = {"title": title, "text": " ".join(s.strip() for s in sentences)}
        case {"metadata": Mapping() as inner}:
            known = {**inner, **given}
        case Mapping():
            known = dict(given)
    field, text = _first(known, TEXTS)
    if not isinstance(text, str):
        raise BadRow("has a passage without text")
    _, title = _first(known, ("title", "wikipedia_title"))
    if field == "contents" and title is None and "\n" in text:  # FlashRAG: the first line
        title, text = text.split("\n", 1)
        title = title.strip().strip('"')
    named = {"title": title, "source": _first(known, ("source", "url"))[1]}
    return Document(text, metadata={k: str(v) for k, v in named.items() if v is not None})


def _shown(value: object) -> str:
    return repr(one_line(value, 40))
