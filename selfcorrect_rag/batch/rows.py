"""The rows of the output: one for each question, with the same columns for every graph."""

import json
from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.errors import describe_error, require
from selfcorrect_rag.intake import valid
from selfcorrect_rag.models.chat_model import written_text
from selfcorrect_rag.state import Usage

COLUMNS = {
    "id": ("string", "32 hexadecimal digits of the question, what is kept and the settings"),
    "question": ("string", "the question as it was asked; empty for a broken row"),
    "answer": ("string", "the answer without citation marks; null if the row failed"),
    "cited_answer": ("string", "the answer with [1], [2] where it cites"),
    "citations": ("list of citation", "number, title, source and quote of what it cites"),
    "action": ("string", "CRAG's action: correct, incorrect or ambiguous; else null"),
    "grades": ("list of double", "the evaluator's score of each document, -1 to 1"),
    "best_score": ("double", "Self-RAG's score of the chosen path, the highest; else null"),
    "notes": ("list of string", "fallbacks taken, limits met"),
    "stopped": ("string", "the limit or failed part that cut the answer short; else null"),
    "model_calls": ("int64", "calls of all models"),
    "prompt_tokens": ("int64", "tokens read by the models that report them; null if none does"),
    "generated_tokens": ("int64", "tokens written, likewise"),
    "seconds": ("double", "from the question to its row"),
    "error_type": ("string", "the class of the error of a failed row; else null"),
    "error": ("string", "its message, one line without secrets; else null"),
    "kept": ("string", "the columns of --keep, as a JSON object"),
}
"""Each column with its type and meaning."""
CITATION = ("number", "title", "source", "quote")
BROKEN = "BadRow"
"""The ``error_type`` of a row of the input that cannot be asked."""
_EMPTY: dict[str, Any] = {
    name: [] if kind.startswith("list") else None for name, (kind, _) in COLUMNS.items()
}


def arrow_schema() -> Any:
    """The columns as a ``pyarrow.Schema``.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    pa = require("pyarrow", "ray")
    simple = {"string": pa.string(), "double": pa.float64(), "int64": pa.int64()}
    citation = pa.struct([(c, pa.int64() if c == "number" else pa.string()) for c in CITATION])
    types = simple | {f"list of {name}": pa.list_(kind) for name, kind in simple.items()}
    types["list of citation"] = pa.list_(citation)
    return pa.schema([(name, types[kind]) for name, (kind, _) in COLUMNS.items()])


def answered(result: Mapping[str, Any], seconds: float, counted: Usage) -> dict[str, Any]:
    """The columns of a graph's result, but those of the question.

    Args:
        result: of a graph of ours, or of any with an ``answer`` or ``messages`` that end with it.
        seconds: wall-clock time of the run.
        counted: the costs of a graph that does not report its own.

    Raises:
        ValueError: there is no answer.
    """
    answer = result.get("answer")
    if not isinstance(answer, str):
        if not result.get("messages"):
            raise ValueError("the graph's result has neither an answer nor messages")
        answer = written_text(result["messages"][-1])
    usage, steps = result.get("usage") or counted, result.get("route") or [counted]
    scores = [candidate.get("path_score") for candidate in result.get("candidates") or []]
    row = {
        **_EMPTY,
        "answer": answer,
        "cited_answer": result.get("cited_answer") or answer,
        "citations": [{n: c.get(n) for n in CITATION} for c in result.get("citations") or []],
        "action": result.get("action"),
        "grades": [g["score"] for g in result.get("grades") or [] if g.get("score") is not None],
        "best_score": max((score for score in scores if score is not None), default=None),
        "notes": [str(note) for note in result.get("notes") or []],
        "stopped": result.get("stopped"),
        "model_calls": usage["model_calls"],
        "seconds": round(seconds, 3),
    }
    for name in ("prompt_tokens", "generated_tokens"):
        # A model that reports nothing does not hide what the others have read.
        known = [step[name] for step in steps if step[name] is not None]
        row[name] = sum(known) if known else None
    cleaned: dict[str, Any] = json.loads(valid(json.dumps(row, ensure_ascii=False, default=str)))
    return cleaned


def failed(error: Exception | str, seconds: float = 0.0, calls: int = 0) -> dict[str, Any]:
    """The columns of a question that failed; a text is why a row of the input is broken."""
    kind, _, message = (BROKEN, "", error) if isinstance(error, str) else _split(error)
    costs = {"model_calls": calls, "seconds": round(seconds, 3)}
    return {**_EMPTY, **costs, "error_type": kind, "error": message}


def _split(error: Exception) -> tuple[str, str, str]:
    return describe_error(error).partition(": ")
