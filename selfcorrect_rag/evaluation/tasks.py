"""Questions of an evaluation: the papers' task files, JSONL, JSON, CSV, TSV, hub data sets.

Files are untrusted: a row that cannot be used is skipped and named, and the others are read.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadArgument, BadRows, describe_error, one_line, require
from selfcorrect_rag.journal import read_rows

IDS = ("id", "_id", "qid", "question_id", "sample_id", "claim_id")
QUESTIONS = ("question", "query", "user_input", "ambiguous_question", "QUESTION", "claim")
ANSWERS = ("answers", "golden_answers", "possible_answers", "answer", "reference", "ground_truth")
PASSAGES = (
    *("ctxs", "docs", "paragraphs", "passages", "contexts", "retrieved_contexts"),
    *("retrieval_result", "context", "passage", "CONTEXTS"),
)
TEXTS = ("text", "paragraph_text", "contents", "page_content", "content", "passage")
"""Names that data sets give to one field; the first that a row has counts."""
ANSWER_KEYS = ("value", "aliases", "text", "short_answers", "answers")


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
    """The row's other fields (``qa_pairs``, ``annotations``, ...)."""
    unanswerable: bool = False
    """Whether a refusal is right."""


class Format(NamedTuple):
    """How the rows of a data set are read."""

    sign: str = ""
    """The field by which its rows are recognised."""
    task: str = ""
    answers: tuple[str, ...] = ANSWERS
    labels: Mapping[str, str] = {}
    """For a closed set: the label in the file (lower case) and the option it means."""


YES_NO = {"yes": "yes", "no": "no", "true": "yes", "false": "no"}
TRUTH = {"true": "true", "false": "false", "supports": "true", "refutes": "false"}
MAYBE = {**YES_NO, "maybe": "maybe"}
FORMATS: Mapping[str, Format] = {
    "arc": Format("choices", "arc", answers=("answerKey", *ANSWERS)),
    "asqa": Format("qa_pairs", "asqa", answers=()),
    "pubhealth": Format("claim", "pubhealth", (*ANSWERS, "label"), TRUTH),
    "pubmedqa": Format("final_decision", answers=("final_decision",), labels=MAYBE),
    "popqa": Format("s_wiki_title", "popqa"),
    "triviaqa": Format("question_source", "triviaqa"),
    "nq": Format("nq_annotated_gold", "nq"),
    "2wikimultihopqa": Format("evidences", "2wikimultihopqa"),
    "yes-no": Format(labels=YES_NO),
    "qa": Format(),
}
"""The formats by name; ``yes-no`` is told by a boolean answer."""


class Task(NamedTuple):
    """Questions to ask, in the order of their rows."""

    name: str
    questions: tuple[Question, ...]
    skipped: tuple[str, ...]
    """Place and reason of each row that is not asked, such as ``FILE:3: has no question``."""


class BadRow(ValueError):
    """A row that is not a question; the message follows the row's place."""


def read_task(source: str | Path, *, format: str | None = None, limit: int | None = None) -> Task:
    """Read the questions of a file or of a Hugging Face data set.

    Args:
        source: a file (see :func:`~selfcorrect_rag.journal.read_rows`), or ``hf:NAME[:SPLIT]``,
            ``hf:NAME:CONFIGURATION:SPLIT``.
        format: a key of :data:`FORMATS`; None: by each row's fields.
        limit: maximum number of questions, the first ones.

    Raises:
        BadRows: the source cannot be read or has no valid question.
        BadArgument: an unknown format.
        MissingExtra: ``datasets`` is not installed.
    """
    if format is not None and format not in FORMATS:
        raise BadArgument(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    questions: dict[str, Question] = {}
    skipped: list[str] = []
    is_hub = str(source).startswith("hf:")
    rows = _hub_rows(str(source)) if is_hub else read_rows(Path(source), skipped)
    for number, row in rows:
        try:
            question = question_of(row, number, format)
            if question.id in questions:
                raise BadRow(f"has the id {question.id!r} of an earlier row")
            questions[question.id] = question
        except BadRow as error:
            skipped.append(f"{source}:{number}: {error}")
        if len(questions) == limit:
            break
    if not questions:
        raise BadRows(f"no valid question: {skipped[0] if skipped else f'{source} has no rows'}")
    name = str(source) if is_hub else Path(source).name.split(".")[0]
    return Task(name, tuple(questions.values()), tuple(skipped))


def asked(question: Question) -> str:
    """The question's text with its lettered options below, as Self-RAG asks ARC-Challenge."""
    options = [f"\n{key}: {text}" for key, text in question.choices.items() if key != text]
    return "".join([question.question, *options])


def _hub_rows(source: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Stream a Hugging Face data set; the split is ``test`` if none is named."""
    name, *rest = source.removeprefix("hf:").split(":")
    if not name or len(rest) > 2 or not all(rest):
        raise BadRows(f"{source}: write hf:NAME, hf:NAME:SPLIT or hf:NAME:CONFIGURATION:SPLIT")
    configuration, split = (rest[0] if len(rest) == 2 else None), (rest[-1] if rest else "test")
    datasets = require("datasets", "eval")
    try:
        rows = datasets.load_dataset(name, configuration, split=split, streaming=True)
        yield from enumerate(rows, start=1)
    except Exception as error:  # each library below raises its own
        raise BadRows(f"cannot read split {split} of {name}: {describe_error(error)}") from error


# A row as a question


def find_format(row: Mapping[str, Any]) -> str:
    """The format of a row, by its fields."""
    signed = (name for name, form in FORMATS.items() if form.sign and row.get(form.sign))
    return next(signed, "yes-no" if isinstance(row.get("answer"), bool) else "qa")


def question_of(row: Mapping[str, Any], number: int, format: str | None = None) -> Question:
    """Read a row as a question; one without an id becomes ``row-NUMBER``.

    Raises:
        BadRow: it is not a question of this format.
    """
    if "golden_answers" in row and isinstance(row.get("metadata"), Mapping):
        row = {**row["metadata"], **row}  # FlashRAG keeps the other fields there
    name = format or find_format(row)
    form = FORMATS[name]
    question_field, question = _first(row, QUESTIONS)
    if not isinstance(question, str) or not question.strip():
        raise BadRow("has no question")
    id_field, identity = _first(row, IDS)
    answer_field, given = _first(row, form.answers)
    passage_field, passages = _read_passages(row)
    answers = [*flatten(given), *flatten(row.get("answer_aliases"))]
    choices: Mapping[str, str] = {option: option for option in form.labels.values()}
    if name == "arc":
        answers, choices = _read_choices(row.get("choices"), answers)
    elif name == "asqa":
        answers = flatten(row.get("qa_pairs"))
    elif form.labels:
        if unknown := [each for each in answers if each.lower() not in form.labels]:
            raise BadRow(f"has {_shown(unknown[0])}, which is not one of {', '.join(form.labels)}")
        answers = [form.labels[answer.lower()] for answer in answers]
    flags = {"is_impossible": "true", "unanswerable": "true", "answerable": "false"}
    refuse = any(str(row.get(name)).lower() == value for name, value in flags.items())
    read = {question_field, id_field, answer_field, passage_field, "choices", "metadata"}
    return Question(
        str("" if identity is None else identity).strip() or f"row-{number}",
        question.strip(),
        () if refuse else tuple(dict.fromkeys(answer for answer in answers if answer.strip())),
        passages,
        form.task,
        choices,
        {key: value for key, value in row.items() if key not in read},
        refuse,
    )


def _first(row: Mapping[str, Any], names: Iterable[str]) -> tuple[str, Any]:
    """Name and value of the first of these fields that is not null."""
    return next(((name, row[name]) for name in names if row.get(name) is not None), ("", None))


def flatten(given: Any) -> list[str]:
    """Accepted answers as a flat list: of a text, number, list, or list written as JSON text; of
    the mappings of TriviaQA (``value``, ``aliases``), SQuAD (``text``) and ASQA's ``qa_pairs``."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise BadRow(f"has {_shown(given)} as its answers, which is not a JSON list") from error
    if isinstance(given, Mapping):
        found = [given[key] for key in ANSWER_KEYS if key in given]
        if not found:
            raise BadRow(f"has {_shown(given)} as an answer")
        given = found
    if isinstance(given, list | tuple):
        return [answer for each in given for answer in flatten(each)]
    return [] if given is None else [str(given)]


def _read_choices(given: Any, answers: list[str]) -> tuple[list[str], Mapping[str, str]]:
    """Answers and options with letters, as Self-RAG writes ARC: keys 1 to 4 become A to D.

    Options are a mapping, or ``{"label": [..], "text": [..]}``; answers are keys or texts.
    """
    options = dict(given) if isinstance(given, Mapping) else {}
    if isinstance(options.get("label"), list) and isinstance(options.get("text"), list):
        options = dict(zip(options["label"], options["text"], strict=False))
    if len(options) < 2 or not all(isinstance(each, str) for each in (*options, *options.values())):
        raise BadRow("has no two or more choices with keys and texts")
    numbered = list(options) == [str(place) for place in range(1, len(options) + 1)]
    letters = {key: chr(ord("A") + i) if numbered else key for i, key in enumerate(options)}
    names = {text: letters[key] for key, text in options.items()} | letters
    if unknown := [each for each in answers if each not in names]:
        raise BadRow(f"has {_shown(unknown[0])}, which is not one of {', '.join(options)}")
    return [names[each] for each in answers], {letters[key]: t for key, t in options.items()}


def _read_passages(row: Mapping[str, Any]) -> tuple[str, tuple[Document, ...] | None]:
    """The field with the passages, and them."""
    field, given = _first(row, PASSAGES)
    if given is None:
        return "", None
    if isinstance(given, str):
        given = [{"text": given, "title": row.get("title")}]
    if isinstance(given, Mapping) and isinstance(given.get("title"), list):  # HotpotQA on the hub
        given = list(zip(given["title"], given.get("sentences") or [], strict=False))
    if not isinstance(given, list | tuple):
        raise BadRow(f"has {_shown(given)} as its passages")
    return field, tuple(map(_read_passage, given))


def _read_passage(given: Any) -> Document:
    known: Mapping[str, Any] = {}
    match given:
        case str():
            known = {"text": given}
        case [str(title), [*sentences]]:  # HotpotQA, 2WikiMultihopQA
            known = {"title": title, "text": " ".join(str(each).strip() for each in sentences)}
        case Mapping():
            known = given
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
