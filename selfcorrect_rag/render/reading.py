"""Reads results for pages and terminals: graph, decisions, documents and numbers.

Results come from ``invoke``, from a state, from a server or from the JSON of ``ask``; any key may
be missing.
"""

import math
from collections.abc import Mapping, Sequence, Sized
from typing import Any, NamedTuple, get_args

from langchain_core.documents import Document

from selfcorrect_rag.nodes.base.citations import RELEVANT
from selfcorrect_rag.prompts.refusals import is_refusal
from selfcorrect_rag.reflection import Group
from selfcorrect_rag.state.sources import shown_source, title_line
from selfcorrect_rag.thresholds import Action

Result = Mapping[str, Any]

GRAPHS = {
    "self_rag": "Self-RAG",
    "crag": "CRAG",
    "self_crag": "Self-CRAG",
    "instruct_rag": "InstructRAG",
}
"""The graphs, by the names that their factories give them."""


def graph_of(result: Result) -> str:
    """The graph of a result, by its keys; empty if unknown."""
    if "numbering" in result or "rationale" in result:
        return "instruct_rag"
    reflects = "candidates" in result or "retrieval" in result
    corrects = "grades" in result or "action" in result
    if corrects:
        return "self_crag" if reflects else "crag"
    return "self_rag" if reflects else ""


def knowledge_of(result: Result) -> tuple[str, list["Shown"]]:
    """Name and documents of the list that candidates and citations index."""
    name = "knowledge" if graph_of(result) in ("crag", "self_crag") else "passage"
    return name, documents(result, "knowledge" if name == "knowledge" else "passages")


def why_uncited(result: Result) -> str:
    """Why an answer that read something cites nothing; empty where it cites, read nothing, or is of
    a graph that judges nothing."""
    kind, answer = graph_of(result), str(result.get("answer") or "")
    if not kind or rows(result, "citations") or not answer or not knowledge_of(result)[1]:
        return ""
    judged = any(found == "relevant" for found in rows(result, "judged"))
    otherwise = "no knowledge was judged relevant"
    if kind == "instruct_rag":
        judged, otherwise = bool(rows(result, "useful_documents")), "the rationale uses no document"
    elif kind in ("self_rag", "self_crag"):
        chosen = [c for c in records(result, "candidates") if c.get("chosen")]
        isrel = [number(record(c, "critique").get(Group.ISREL)) for c in chosen]
        judged = any((score or 0.0) >= RELEVANT for score in isrel)
        otherwise = otherwise if kind == "self_crag" else "no passage was judged relevant"
    if judged and is_refusal(answer):
        return "the answer declines to answer"
    if judged and kind == "crag":
        return "the answer points at nothing that was judged relevant"
    return otherwise


def decision(result: Result) -> tuple[str, str] | None:
    """The retrieval decision in words, and why; None without one."""
    decided = record(result, "retrieval")
    if not decided:
        return None
    verb = "retrieve" if decided.get("retrieve") else "no retrieval"
    probability, threshold = number(decided.get("probability")), number(decided.get("threshold"))
    if probability is None:
        return verb, f"mode {decided.get('mode', '')}"
    if threshold is None:
        return verb, f"the model's own choice, P(retrieve) {probability:.3f}"
    sign = ">" if decided.get("retrieve") else "<="
    return verb, f"P(retrieve) {probability:.3f} {sign} threshold {threshold:g}"


def action(result: Result) -> tuple[Action, str] | None:
    """CRAG's action, and the scores that led to it; None where there is none."""
    taken: Any = result.get("action")
    if taken not in get_args(Action):
        return None
    upper, lower = thresholds(result)
    scores = [number(grade.get("score")) for grade in records(result, "grades")]
    best = max((score for score in scores if score is not None), default=None)
    why = "nothing was retrieved" if best is None else f"best score {best:.3f}"
    if upper is not None and lower is not None:
        why += f"; Correct above {upper:.3g}, Incorrect below {lower:.3g}"
    return taken, why


def thresholds(result: Result) -> tuple[float | None, float | None]:
    """CRAG's upper and lower threshold."""
    given = record(result, "thresholds")
    return number(given.get("upper")), number(given.get("lower"))


def verdict(result: Result, document: int) -> str:
    """How InstructRAG's rationale judges a document: useful, dismissed or not named."""
    if document in rows(result, "useful_documents"):
        return "useful"
    return "dismissed" if document in rows(result, "dismissed_documents") else "not named"


def strips_kept(result: Result, key: str) -> str:
    """``2 of 5 strips kept``; empty where there are none."""
    strips = records(result, key)
    kept = sum(bool(strip.get("kept")) for strip in strips)
    return f"{kept} of {counted(len(strips), 'strip')} kept" if strips else ""


def cost(result: Result) -> list[str]:
    """The cost of the run: seconds, calls, prompts and tokens, as far as the result says."""
    seconds, usage = number(result.get("seconds")), record(result, "usage")
    parts = [] if seconds is None else [f"{seconds:.2f} s"]
    for key, noun in _USAGE.items():
        amount = index(usage.get(key))
        if amount or (amount == 0 and key == "model_calls"):
            parts.append(counted(amount, noun))
    return parts


_USAGE = {
    "model_calls": "model call",
    "prompts": "prompt",
    "prompt_tokens": "prompt token",
    "generated_tokens": "generated token",
    "retrievals": "retrieval",
    "pruned": "pruned passage",
    "tokens_saved": "saved token",
}


class Shown(NamedTuple):
    """A document, as the page shows it."""

    title: str
    source: str
    text: str
    id: str
    score: float | None
    """The retriever's score, on a scale of its own."""


def documents(result: Result, key: str) -> list[Shown]:
    """The documents at ``key``, given as objects or JSON."""
    return [_shown(document) for document in rows(result, key)]


def _shown(document: object) -> Shown:
    given: object = {}
    written: object = document
    name: object = None
    if isinstance(document, Document):
        given, written, name = document.metadata, document.page_content, document.id
    elif isinstance(document, Mapping):
        given = document.get("metadata")
        written = document.get("text") or document.get("page_content")
        name = document.get("id")
    metadata = given if isinstance(given, Mapping) else {}
    return Shown(
        title=title_line(metadata.get("title")),
        source=shown_source(metadata.get("source") or metadata.get("url")),
        text=str(written or ""),
        id=str(name or ""),
        score=number(metadata.get("score")),
    )


def rows(result: Result, key: str) -> list[Any]:
    """The list at ``key``; empty where there is none."""
    found = result.get(key)
    return list(found) if isinstance(found, Sequence) and not isinstance(found, str) else []


def records(result: Result, key: str) -> list[Mapping[str, Any]]:
    """The dicts of the list at ``key``."""
    return [row for row in rows(result, key) if isinstance(row, Mapping)]


def record(result: Result, key: str) -> Mapping[str, Any]:
    """The dict at ``key``; empty where there is none."""
    found = result.get(key)
    return found if isinstance(found, Mapping) else {}


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def index(value: object, of: Sized | None = None) -> int | None:
    """An index, or None; where ``of`` is given, one of its indices or None."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if value >= 0 and (of is None or value < len(of)) else None


def counted(count: int, noun: str) -> str:
    """``1 passage``, ``2 passages``; ``noun`` is singular and takes an s."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
