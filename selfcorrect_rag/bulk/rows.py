"""The rows of the output: one for each question, of the same columns for every graph."""

from collections.abc import Mapping, Sequence
from typing import Any

from selfcorrect_rag.errors import require, safe_message
from selfcorrect_rag.prompts.parts import as_text
from selfcorrect_rag.render import reading
from selfcorrect_rag.state import FREE, Usage, total
from selfcorrect_rag.intake import fit

COLUMNS = {
    "id": ("string", "32 hexadecimal digits of the question, what is kept and the settings"),
    "question": ("string", "the question as it was asked; empty for a broken row"),
    "answer": ("string", "the answer without citation marks; null where the row failed"),
    "cited_answer": ("string", "the answer with [1], [2] where it cites"),
    "citations": ("list of citation", "number, title, source and quote of what it cites"),
    "action": ("string", "CRAG's action: correct, incorrect or ambiguous; else null"),
    "grades": ("list of double", "the evaluator's score of each document, -1 to 1"),
    "best_score": ("double", "Self-RAG's score of the chosen path, the highest; else null"),
    "notes": ("list of string", "fallbacks taken, limits met"),
    "stopped": ("string", "the limit or failed part that cut the answer short; else null"),
    "model_calls": ("int64", "calls of all models"),
    "prompt_tokens": ("int64", "tokens read; null where a model did not say"),
    "generated_tokens": ("int64", "tokens written; null where a model did not say"),
    "seconds": ("double", "from the question to its row"),
    "error_type": ("string", "the class of the error of a row that failed; else null"),
    "error": ("string", "its message, one line without secrets; else null"),
    "kept": ("string", "the columns of --keep, as a JSON object"),
}
"""Each column with its type and its meaning; a citation is a struct of ``number`` (int64) and the
strings ``title``, ``source`` and ``quote``."""
ANSWER = tuple(name for name in COLUMNS if name not in ("id", "question", "kept"))
"""The columns that come of asking."""
CITATION = ("number", "title", "source", "quote")
BROKEN = "BadRow"
"""The ``error_type`` of a row of the input that could not be asked."""


def arrow_schema(names: Sequence[str] = tuple(COLUMNS)) -> Any:
    """The columns ``names`` as a ``pyarrow.Schema``.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    pa = require("pyarrow", "parquet")
    citation = pa.struct(
        [(name, pa.int64() if name == "number" else pa.string()) for name in CITATION]
    )
    plain = {"string": pa.string(), "double": pa.float64(), "int64": pa.int64()}
    lists = {
        "list of citation": pa.list_(citation),
        "list of double": pa.list_(pa.float64()),
        "list of string": pa.list_(pa.string()),
    }
    return pa.schema([(name, (plain | lists)[COLUMNS[name][0]]) for name in names])


def answered(result: Mapping[str, Any], seconds: float, counted: Usage = FREE) -> dict[str, Any]:
    """The columns :data:`ANSWER` of a graph's result.

    Args:
        result: of a graph of ours, or of another one with an ``answer``, or with ``messages`` that
            end with it, and any of the keys of ours.
        seconds: wall-clock time of the run.
        counted: the cost of a graph that does not count its own.

    Raises:
        ValueError: there is no answer.
    """
    answer = result.get("answer")
    messages = reading.rows(result, "messages")
    if not isinstance(answer, str):
        if not messages or not hasattr(messages[-1], "content"):
            raise ValueError("the graph's result has neither an answer nor messages")
        answer = as_text(messages[-1].content)
    costs = result.get("route") or []
    cost = total(costs) if costs else counted
    grades = (reading.number(grade.get("score")) for grade in reading.records(result, "grades"))
    scores = [reading.number(c.get("path_score")) for c in reading.records(result, "candidates")]
    row = {
        "answer": answer,
        "cited_answer": str(result.get("cited_answer") or answer),
        "citations": [
            {name: citation.get(name) for name in CITATION}
            for citation in reading.records(result, "citations")
        ],
        "action": _text(result.get("action")),
        "grades": [grade for grade in grades if grade is not None],
        "best_score": max((score for score in scores if score is not None), default=None),
        "notes": [str(note) for note in reading.rows(result, "notes")],
        "stopped": _text(result.get("stopped")),
        "model_calls": cost["model_calls"],
        "prompt_tokens": cost["prompt_tokens"],
        "generated_tokens": cost["generated_tokens"],
        "seconds": round(seconds, 3),
        "error_type": None,
        "error": None,
    }
    fitting: dict[str, Any] = fit(row)
    return fitting


def failed(
    kind: str, message: object, seconds: float = 0.0, counted: Usage = FREE
) -> dict[str, Any]:
    """The columns :data:`ANSWER` of a question that failed."""
    empty = dict.fromkeys(("answer", "cited_answer", "action", "best_score", "stopped"))
    return {
        **empty,
        "citations": [],
        "grades": [],
        "notes": [],
        "model_calls": counted["model_calls"],
        "prompt_tokens": counted["prompt_tokens"],
        "generated_tokens": counted["generated_tokens"],
        "seconds": round(seconds, 3),
        "error_type": kind,
        "error": safe_message(message),
    }


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
