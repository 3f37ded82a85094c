"""A result as the values that the templates show: plain, bounded, and inert whatever it holds."""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from langchain_core.documents import Document
from langgraph.types import Interrupt

from selfcorrect_rag.intake import shown_source, source_of, title_line, title_of, web_address
from selfcorrect_rag.reflection import TOKENS

Result = Mapping[str, Any]
"""A graph's result, or the JSON of one."""
MAX_CHARACTERS = 20_000
"""Maximum characters of a text; the rest is cut, and the page says so."""
GRAPHS = {
    "self_rag": "Self-RAG",
    "crag": "CRAG",
    "self_crag": "Self-CRAG",
    "instruct_rag": "InstructRAG",
}
STEPS = {
    "read_question": "Read the question",
    "rewrite_follow_up": "Rewrote the follow-up question",
    "decide_retrieval": "Decided whether to retrieve",
    "retrieve": "Retrieved",
    "rerank": "Reranked",
    "grade_documents": "Graded the documents",
    "refine_strips": "Refined the documents into strips",
    "rewrite_query": "Wrote a search query",
    "web_search": "Searched the web",
    "select_web_strips": "Refined the web pages into strips",
    "recompose_knowledge": "Recomposed the knowledge",
    "judge_sufficiency": "Judged whether that is sufficient",
    "generate_and_critique": "Wrote and criticised candidates",
    "beam_select": "Selected beams",
    "choose_demonstrations": "Chose demonstrations",
    "write_rationale": "Wrote a rationale",
    "generate": "Wrote the answer",
    "write_answer": "Put the answer together",
}
_NO_USAGE = {"model_calls": 0, "prompt_tokens": None, "generated_tokens": None}
_MARK = re.compile(r"\[(\d{1,3})\]")
_JOINERS = "\u200c\u200d"


def view(result: Result) -> dict[str, Any]:
    """Return the values of a run's page; any key of the result may be missing."""
    graph = graph_of(result)
    knowledge = "knowledge" if graph in ("crag", "self_crag") else "passages"
    citations = [_citation(c, knowledge) for c in result.get("citations") or []]
    return {
        "graph": GRAPHS.get(graph, "a graph"),
        "question": visible(result.get("question") or result.get("original_question") or ""),
        "answer": _linked(result.get("cited_answer") or result.get("answer") or "", citations),
        "citations": citations,
        "notes": [visible(note) for note in result.get("notes") or []],
        "paused": _paused(result.get("__interrupt__") or []),
        "rationale": visible(result.get("rationale") or ""),
        "retrieval": _retrieval(result.get("retrieval") or {}),
        "action": result.get("action"),
        "thresholds": {"upper": None, "lower": None, **(result.get("thresholds") or {})},
        "route": [_step(step) for step in result.get("route") or []],
        "usage": {**_NO_USAGE, **(result.get("usage") or {})},
        "seconds": result.get("seconds"),
        "segments": segments(result.get("candidates") or [], knowledge),
        "options": result.get("options") or {},
        "documents": [
            _documents("passages", "Passages", result, result.get("strips")),
            _documents("web_results", "Web results", result, result.get("web_strips")),
            *([_documents("knowledge", "Knowledge", result)] if knowledge == "knowledge" else []),
        ],
        "web_query": visible(result.get("web_query") or ""),
        "web_source": visible(result.get("web_source") or ""),
    }


def graph_of(result: Result) -> str:
    """Tell by its keys which graph a result is of."""
    if "rationale" in result:
        return "instruct_rag"
    if "grades" in result or "knowledge" in result:
        return "self_crag" if "candidates" in result else "crag"
    return "self_rag"


def visible(text: object) -> str:
    """Return a text bounded, with characters that reorder, hide or control shown by their code."""
    given = str(text)
    shown = "".join(
        letter
        if letter.isprintable()
        or letter in _JOINERS
        or letter in "\n\t"
        or unicodedata.category(letter) == "Zs"
        else f"⟨U+{ord(letter):04X}⟩"
        for letter in given[:MAX_CHARACTERS]
    )
    cut = len(given) - MAX_CHARACTERS
    return f"{shown}… ({cut:,} characters more)" if cut > 0 else shown


def json_value(value: Any) -> Any:
    """Return a JSON value for an object in a result, as the ``default`` of ``json.dumps``."""
    if isinstance(value, Document):
        return {"id": value.id, "text": value.page_content, "metadata": value.metadata}
    if isinstance(value, Interrupt):
        return {"value": value.value, "id": value.id}
    return str(value)


def segments(candidates: Sequence[Any], knowledge: str) -> list[list[dict[str, Any]]]:
    """Return the candidates by segment, best path first, with the parts of their scores."""
    rows = [_candidate(i, candidate, knowledge) for i, candidate in enumerate(candidates)]
    rows.sort(key=lambda row: (row["depth"], -row["score"]))
    return [list(group) for _, group in groupby(rows, key=lambda row: row["depth"])]


def _candidate(number: int, candidate: Mapping[str, Any], knowledge: str) -> dict[str, Any]:
    score = candidate.get("path_score")
    passage = candidate.get("passage")
    return {
        "number": number,
        "depth": candidate.get("depth", 0),
        "text": visible(candidate.get("text") or "no text"),
        "passage": None if passage is None else passage + 1,
        "anchor": None if passage is None else f"{knowledge}-{passage + 1}",
        "score": -math.inf if score is None else score,
        "terms": [
            {"name": term["name"], "weight": term["weight"], "value": term["value"]}
            for term in candidate.get("terms") or []
        ],
        "judgements": {
            group: sorted(given.items(), key=lambda item: -item[1])
            for group, given in (candidate.get("judgements") or {}).items()
            if group in TOKENS
        },
        "chosen": bool(candidate.get("chosen")),
        "dropped": visible(candidate.get("dropped") or ""),
        "hard": bool(candidate.get("hard")),
    }


def _linked(text: str, citations: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Split an answer at its marks: pairs of a text and the citation of the mark behind it."""
    by_number = {str(citation["number"]): citation for citation in citations}
    parts, last = [], 0
    for match in _MARK.finditer(text):
        if match[1] in by_number:
            parts.append((visible(text[last : match.start()]), by_number[match[1]]))
            last = match.end()
    return [*parts, (visible(text[last:]), None)] if text else []


def _citation(citation: Mapping[str, Any], knowledge: str) -> dict[str, Any]:
    passage = citation.get("passage")
    source = shown_source(citation.get("source"))
    title = title_line(citation.get("title"))
    heading = str(citation.get("heading") or "").removeprefix(title).removeprefix(" > ")
    return {
        "number": citation.get("number"),
        "title": title or source or "untitled",
        "source": source,
        "url": web_address(citation.get("source") or ""),
        "page": citation.get("page"),
        "heading": visible(heading),
        "quote": visible(citation.get("quote") or ""),
        "anchor": None if passage is None else f"{knowledge}-{passage + 1}",
    }


def _paused(interrupts: Sequence[Any]) -> list[str]:
    values = (i.get("value") if isinstance(i, Mapping) else i.value for i in interrupts)
    return [visible(v.get("query", v) if isinstance(v, Mapping) else v) for v in values]


def _retrieval(retrieval: Mapping[str, Any]) -> dict[str, Any]:
    if not retrieval:
        return {}
    verb = "Retrieve" if retrieval.get("retrieve") else "Do not retrieve"
    return {"probability": None, "threshold": None, **retrieval, "verb": verb}


def _step(step: Mapping[str, Any]) -> dict[str, Any]:
    name = str(step.get("step"))
    words = STEPS.get(name, visible(name.replace("_", " ").capitalize()))
    return {**_NO_USAGE, **step, "words": words, "failed": visible(step.get("failed") or "")}


def _documents(
    key: str, heading: str, result: Result, strips: Sequence[Any] | None = None
) -> dict[str, Any]:
    """The documents under a key, each with its grade and its strips."""
    grades = result.get("grades") or [] if key == "passages" else []
    rows = []
    for i, document in enumerate(result.get(key) or []):
        text, metadata = _content(document)
        source = source_of(metadata)
        rows.append(
            {
                "number": i + 1,
                "anchor": f"{key}-{i + 1}",
                "title": title_of(metadata) or shown_source(source) or "untitled",
                "source": shown_source(source),
                "url": web_address(source),
                "text": visible(text),
                "grade": grades[i].get("score") if i < len(grades) else None,
                "strips": [
                    {"kept": False, "score": None, **strip, "text": visible(strip.get("text"))}
                    for strip in strips or []
                    if strip.get("document") == i
                ],
            }
        )
    return {"key": key, "heading": heading, "rows": rows}


def _content(document: Any) -> tuple[str, Any]:
    """Text and metadata of a Document, or of its JSON."""
    if isinstance(document, Mapping):
        text = str(document.get("text", document.get("page_content", "")))
        return text, Document(text, metadata=document.get("metadata") or {})
    return document.page_content, document
