"""The questions of an evaluation, and the outcomes of methods that are asked them.

Files are untrusted: a row that cannot be used is skipped and named, and the others are read.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadRows, describe_error, one_line, require
from selfcorrect_rag.intake import source_of, title_of
from selfcorrect_rag.journal import read_rows
from selfcorrect_rag.prompts.reading import is_refusal

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
CANDIDATE = (
    *("depth", "parent", "step", "passage", "text", "critique", "sequence_probability"),
    *("score", "next", "option", "dropped", "chosen"),
)
"""Keys of a candidate that outcomes keep, enough to weigh it again."""


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
    short_answers: tuple[tuple[str, ...], ...] = ()
    """ASQA's: the accepted forms of each."""
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
FORMATS: Mapping[str, Format] = {
    "arc": Format("choices", "arc", ("answerKey", *ANSWERS)),
    "asqa": Format("qa_pairs", "asqa", ("qa_pairs",)),
    "pubhealth": Format("claim", "pubhealth", (*ANSWERS, "label"), TRUTH),
    "pubmedqa": Format("final_decision", "", ("final_decision",), {**YES_NO, "maybe": "maybe"}),
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


def read_task(source: str | Path, *, limit: int | None = None) -> Task:
    """Read the questions of a file or of a Hugging Face data set.

    Args:
        source: a file (see :func:`~selfcorrect_rag.journal.read_rows`), or ``hf:NAME[:SPLIT]``,
            ``hf:NAME:CONFIGURATION:SPLIT``.
        limit: maximum number of questions, the first ones.

    Raises:
        BadRows: the source cannot be read or has no valid question.
    """
    questions: dict[str, Question] = {}
    skipped: list[str] = []
    is_hub = str(source).startswith("hf:")
    rows = _hub_rows(str(source)) if is_hub else read_rows(Path(source), skipped)
    for number, row in rows:
        try:
            question = question_of(row, number)
            if question.id in questions:
                raise BadRows(f"has the id {question.id!r} of an earlier row")
            questions[question.id] = question
        except BadRows as error:
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


def question_of(row: Mapping[str, Any], number: int) -> Question:
    """Read a row as a question; one without an id becomes ``row-NUMBER``."""
    if "golden_answers" in row and isinstance(row.get("metadata"), Mapping):
        row = {**row["metadata"], **row}  # FlashRAG keeps the other fields there
    signed = (name for name, form in FORMATS.items() if form.sign and row.get(form.sign))
    name = next(signed, "yes-no" if isinstance(row.get("answer"), bool) else "qa")
    form = FORMATS[name]
    question = _first(row, QUESTIONS)
    if not isinstance(question, str) or not question.strip():
        raise BadRows("has no question")
    answers = [*flatten(_first(row, form.answers)), *flatten(row.get("answer_aliases"))]
    choices: Mapping[str, str] = {option: option for option in form.labels.values()}
    if name == "arc":
        answers, choices = _read_choices(row["choices"], answers)
    elif form.labels:
        if unknown := [each for each in answers if each.lower() not in form.labels]:
            raise BadRows(f"has {_shown(unknown[0])}, which is not one of {', '.join(form.labels)}")
        answers = [form.labels[answer.lower()] for answer in answers]
    flags = {"is_impossible": "true", "unanswerable": "true", "answerable": "false"}
    refuse = any(str(row.get(flag)).lower() == value for flag, value in flags.items())
    identity = _first(row, IDS)
    return Question(
        str("" if identity is None else identity).strip() or f"row-{number}",
        question.strip(),
        () if refuse else tuple(dict.fromkeys(answer for answer in answers if answer.strip())),
        _read_passages(row),
        form.task,
        choices,
        tuple(tuple(flatten(pair)) for pair in row["qa_pairs"]) if name == "asqa" else (),
        refuse,
    )


def _first(row: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def flatten(given: Any) -> list[str]:
    """Accepted answers as a flat list: of a text, number, list, or list written as JSON text; of
    the mappings of TriviaQA (``value``, ``aliases``), SQuAD (``text``) and ASQA's ``qa_pairs``."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError) as error:
            raise BadRows(f"has {_shown(given)} as its answers, not a JSON list") from error
    if isinstance(given, Mapping):
        found = [given[key] for key in ANSWER_KEYS if key in given]
        if not found:
            raise BadRows(f"has {_shown(given)} as an answer")
        given = found
    if isinstance(given, list | tuple):
        return [answer for each in given for answer in flatten(each)]
    return [] if given is None else [str(given)]


def _read_choices(given: Any, answers: list[str]) -> tuple[list[str], Mapping[str, str]]:
    """Answers and options with letters, as Self-RAG writes ARC: keys 1 to 4 become A to D."""
    options = dict(given) if isinstance(given, Mapping) else {}
    if isinstance(options.get("label"), list) and isinstance(options.get("text"), list):
        options = dict(zip(options["label"], options["text"], strict=False))
    if len(options) < 2 or not all(isinstance(each, str) for each in (*options, *options.values())):
        raise BadRows("has no two or more choices with keys and texts")
    numbered = list(options) == [str(place) for place in range(1, len(options) + 1)]
    letters = {key: chr(ord("A") + i) if numbered else key for i, key in enumerate(options)}
    names = {text: letters[key] for key, text in options.items()} | letters
    if unknown := [each for each in answers if each not in names]:
        raise BadRows(f"has {_shown(unknown[0])}, which is not one of {', '.join(options)}")
    return [names[each] for each in answers], {letters[key]: t for key, t in options.items()}


def _read_passages(row: Mapping[str, Any]) -> tuple[Document, ...] | None:
    given = _first(row, PASSAGES)
    if given is None:
        return None
    if isinstance(given, str):
        given = [{"text": given, "title": row.get("title")}]
    if isinstance(given, Mapping) and isinstance(given.get("title"), list):  # HotpotQA on the hub
        given = list(zip(given["title"], given.get("sentences") or [], strict=False))
    if not isinstance(given, list | tuple):
        raise BadRows(f"has {_shown(given)} as its passages")
    return tuple(map(_read_passage, given))


def _read_passage(given: Any) -> Document:
    known: Mapping[str, Any] = {}
    match given:
        case str():
            known = {"text": given}
        case [str(title), [*sentences]]:  # HotpotQA, 2WikiMultihopQA
            known = {"title": title, "text": " ".join(str(each).strip() for each in sentences)}
        case Mapping():
            known = given
    text = _first(known, TEXTS)
    title = _first(known, ("title", "wikipedia_title"))
    if not isinstance(text, str):
        raise BadRows("has a passage without text")
    if text == known.get("contents") and title is None and "\n" in text:  # FlashRAG
        title, text = text.split("\n", 1)
        title = title.strip().strip('"')
    named = {"title": title, "source": _first(known, ("source", "url"))}
    return Document(text, metadata={k: str(v) for k, v in named.items() if v is not None})


def _shown(value: object) -> str:
    return repr(one_line(value, 40))


class Outcome(NamedTuple):
    """The answer of one method to one question: a row of ``rows.jsonl``."""

    id: str
    """The id of the question."""
    method: str
    answer: str
    """Without citation marks; empty if the run failed."""
    rationale: str = ""
    """InstructRAG's."""
    cited_answer: str = ""
    citations: tuple[Mapping[str, Any], ...] = ()
    passages: tuple[Mapping[str, Any], ...] = ()
    """``title``, ``text``, ``source`` of each text that the answer could cite, in order."""
    refused: bool = False
    retrieved: bool = False
    searched: bool = False
    """Whether the web was searched."""
    action: str = ""
    """CRAG's."""
    score: float | None = None
    """How sure the answer is, for ``score_above``; None if its model does not tell."""
    grades: tuple[float, ...] = ()
    """The evaluator's, of what was retrieved, -1 to 1."""
    candidates: tuple[Mapping[str, Any], ...] = ()
    """Self-RAG's segments, each with the keys of :data:`CANDIDATE`."""
    model_calls: int = 0
    prompt_tokens: int | None = 0
    """None if a model did not report it."""
    generated_tokens: int | None = 0
    seconds: float = 0.0
    error: str = ""
    """Why there is no answer."""


class Run(NamedTuple):
    """The contents of the folder of a run."""

    questions: list[Question]
    outcomes: list[Outcome]
    """Method by method, in the order of the questions; those that ended."""
    stopped: str = ""
    """``max_calls`` if this bound ended the run."""

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(outcome.method for outcome in self.outcomes))

    def of(self, method: str) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.method == method]


def outcome_of(
    question: Question, method: str, result: Mapping[str, Any], seconds: float
) -> Outcome:
    """Read the outcome of the variant ``method`` off the result of its graph."""
    answer, usage = result["answer"], result["usage"]
    read = result.get("knowledge" if "grades" in result or "action" in result else "passages")
    return Outcome(
        id=question.id,
        method=method,
        answer=answer,
        rationale=result.get("rationale") or "",
        cited_answer=result.get("cited_answer") or "",
        action=result.get("action") or "",
        citations=tuple(result.get("citations") or ()),
        passages=tuple(
            {"title": title_of(p), "text": p.page_content, "source": source_of(p)}
            for p in read or ()
        ),
        refused=not answer.strip() or is_refusal(answer),
        retrieved=any(step["step"] == "retrieve" for step in result["route"]),
        searched=bool(result.get("web_query")) and not result.get("web_failure"),
        score=result.get("score"),
        grades=tuple(g["score"] for g in result.get("grades") or () if g["score"] is not None),
        candidates=tuple(
            {key: candidate.get(key) for key in CANDIDATE}
            for candidate in result.get("candidates") or ()
        ),
        **{name: usage[name] for name in ("model_calls", "prompt_tokens", "generated_tokens")},
        seconds=round(seconds, 3),
    )


def outcome_from(row: Mapping[str, Any]) -> Outcome:
    known: dict[str, Any] = {name: row[name] for name in Outcome._fields if name in row}
    known |= {name: tuple(value) for name, value in known.items() if isinstance(value, list)}
    return Outcome(**known)


def count(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Count what runs did; divide by ``rows`` for a frequency. Each is failed, refused or answered.

    ``corrected``: CRAG's action was incorrect or ambiguous.
    """
    answered = [o for o in outcomes if o.answer.strip() and not (o.error or o.refused)]
    failed = sum(bool(o.error) for o in outcomes)
    return {
        "rows": len(outcomes),
        "answered": len(answered),
        "refused": len(outcomes) - len(answered) - failed,
        "failed": failed,
        "cited": sum(bool(o.citations) for o in answered),
        "retrieved": sum(o.retrieved for o in outcomes),
        "searched": sum(o.searched for o in outcomes),
        "corrected": sum(o.action in ("incorrect", "ambiguous") for o in outcomes),
    }
