"""The questions of a batch, and the rows of its output with the same columns for every graph."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from selfcorrect_rag.errors import BadRows, one_line
from selfcorrect_rag.journal import digest, read_rows
from selfcorrect_rag.models.chat_model import written_text
from selfcorrect_rag.state import Usage

COLUMNS = {
    "id": "32 hexadecimal digits of the question and what is kept",
    "question": "the question as it was asked",
    "answer": "the answer without citation marks; null if the question failed",
    "cited_answer": "the answer with [1], [2] where it cites",
    "citations": "number, title, source and quote of what it cites",
    "action": "CRAG's action: correct, incorrect or ambiguous; else null",
    "grades": "the evaluator's score of each document, -1 to 1",
    "notes": "fallbacks taken, limits met",
    "stopped": "the limit or failed part that cut the answer short; else null",
    "model_calls": "calls of all models",
    "prompt_tokens": "tokens read by the models that report them; null if none does",
    "generated_tokens": "tokens written, likewise",
    "seconds": "from the question to its row",
    "error": "class and message of the error, one line without secrets; else null",
    "kept": "the columns of the question's row that were to be kept",
}
"""Each column with its meaning."""
CITATION = ("number", "title", "source", "quote")


class Question(NamedTuple):
    """A row of the input."""

    key: str
    """32 hexadecimal digits of the question and what is kept."""
    text: str
    kept: dict[str, Any]


def read_questions(files: Iterable[str | Path], keep: Sequence[str] = ()) -> list[Question]:
    """Read the questions of JSONL and CSV files, with the columns to ``keep``; equal rows once.

    Raises:
        BadRows: a file cannot be read, a row is not a question, or no row has a kept column.
    """
    found: dict[str, Question] = {}
    unknown = set(keep)
    for file in map(Path, files):
        for number, row in read_rows(file):
            text = row.get("question")
            if not isinstance(text, str) or not text.strip():
                got = one_line(dict(row), 80)
                raise BadRows(f"{file}:{number}: question must be a text, not blank, got {got}")
            kept = {name: row.get(name) for name in keep}
            unknown -= row.keys()
            key = digest([text, json.dumps(kept)])
            found.setdefault(key, Question(key, text, kept))
    if unknown:
        raise BadRows(f"no row has the column {sorted(unknown)[0]}, which is to be kept")
    return list(found.values())


def answered(result: Mapping[str, Any], counted: Usage) -> dict[str, Any]:
    """Return the columns of a graph's result, but those of the question.

    Args:
        result: of a graph of ours, or of any with an ``answer`` or ``messages`` that end with it.
        counted: the costs of a graph that does not report its own.

    Raises:
        ValueError: there is no answer.
    """
    answer = result.get("answer")
    if not isinstance(answer, str):
        if not result.get("messages"):
            raise ValueError("the graph's result has neither an answer nor messages")
        answer = written_text(result["messages"][-1])
    steps = result.get("route") or [counted]
    row = {
        "answer": answer,
        "cited_answer": result.get("cited_answer") or answer,
        "citations": [{n: c.get(n) for n in CITATION} for c in result.get("citations") or []],
        "action": result.get("action"),
        "grades": [g["score"] for g in result.get("grades") or [] if g.get("score") is not None],
        "notes": result.get("notes") or [],
        "stopped": result.get("stopped"),
        "model_calls": (result.get("usage") or counted)["model_calls"],
    }
    for name in ("prompt_tokens", "generated_tokens"):
        # A model that reports nothing does not hide what the others have read.
        known = [step[name] for step in steps if step[name] is not None]
        row[name] = sum(known) if known else None
    plain: dict[str, Any] = json.loads(json.dumps(row, default=str))
    return plain
