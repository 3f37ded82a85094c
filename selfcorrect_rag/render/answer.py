"""What a run answered: the answer with citations that lead to their documents, the rationale."""

import re
from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.render.charts import written
from selfcorrect_rag.render.evidence import LETTERS, pointer
from selfcorrect_rag.render.markup import Html, address, element, folded, joined, limited, marked
from selfcorrect_rag.render.reading import (
    Result,
    counted,
    graph_of,
    index,
    knowledge_of,
    number,
    record,
    records,
    rows,
)

MARK = re.compile(r"\[(\d{1,3})\]")
NAMED = re.compile(r"\bdocuments?\s+\[?(\d{1,3})\b\]?|\[(\d{1,3})\]", re.IGNORECASE)
"""How a rationale names a document."""


def answer(result: Result) -> Html:
    """The answer, what it cites, and what a reader should know about both."""
    name, found = knowledge_of(result)
    citations = records(result, "citations")
    places = {
        str(citation.get("number")): index(citation.get("passage"), found) for citation in citations
    }

    def link(match: re.Match[str]) -> object:
        at = places.get(match[1])
        return match[0] if at is None else element("sup", pointer(name, at, match[0]))

    given = limited(result.get("cited_answer") or result.get("answer") or "")
    paragraphs = [line for line in given.splitlines() if line.strip()]
    score = number(result.get("score"))
    return joined(
        [
            *(
                element("p", marked(line, MARK, link), class_="answer", dir="auto")
                for line in paragraphs
            ),
            None if paragraphs else element("p", "No answer was written.", class_="answer none"),
            element("p", "The best of what broke a hard constraint.", class_="notice")
            if result.get("constraints_met") is False
            else None,
            element("p", f"path score {written(score)}", class_="aside")
            if score is not None
            else None,
            _references(citations, name, places),
        ]
    )


def _references(
    citations: list[Mapping[str, Any]], name: str, places: Mapping[str, int | None]
) -> Html | None:
    if not citations:
        return None
    items = []
    for citation in citations:
        mark = f"[{citation.get('number')}]"
        title = limited(citation.get("title") or "Untitled")
        source = str(citation.get("source") or "")
        at = places.get(str(citation.get("number")))
        link = title if at is None else pointer(name, at, title)
        items.append(
            element(
                "li",
                element("span", f"{mark} ", class_="number"),
                element("bdi", link),
                *([", ", element("bdi", address(source))] if source not in ("", title) else []),
                None if at is None else f" ({LETTERS[name]}{at + 1})",
            )
        )
    return element("ol", *items, class_="references", aria_label="Citations")


def rationale(result: Result) -> Html | None:
    """What the model wrote, with links from the documents it names."""
    given = limited(result.get("rationale") or "")
    if not given.strip():
        return None
    numbering = rows(result, "numbering")
    found = rows(result, "passages")

    def link(match: re.Match[str]) -> object:
        at = int(match[1] or match[2]) - 1
        shown = index(numbering[at], found) if 0 <= at < len(numbering) else None
        return match[0] if shown is None else pointer("passage", shown, match[0])

    return joined(
        element("p", marked(line, NAMED, link), class_="prose", dir="auto")
        for line in given.splitlines()
        if line.strip()
    )


def demonstrations(result: Result) -> Html | None:
    """The examples that the model was shown."""
    shown = records(result, "demonstrations")
    if not shown:
        return None
    return joined(
        folded(
            limited(demonstration.get("question") or ""),
            element(
                "p",
                limited(
                    demonstration.get("rationale")
                    or ", ".join(map(str, rows(demonstration, "answers")))
                ),
                class_="prose",
                dir="auto",
            ),
        )
        for demonstration in shown
    )


def notes(result: Result) -> Html | None:
    """Fallbacks taken, limits met, and what a paused run waits for."""
    waiting = [_paused(interrupt) for interrupt in rows(result, "__interrupt__")]
    said = [element("li", limited(note), dir="auto") for note in rows(result, "notes")]
    if not (waiting or said):
        return None
    return joined([*waiting, element("ul", *said, class_="notes") if said else None])


def _paused(interrupt: object) -> Html:
    """An interrupt, be it an object or JSON."""
    value = interrupt.get("value") if isinstance(interrupt, Mapping) else None
    value = getattr(interrupt, "value", value)
    parts = value if isinstance(value, Mapping) else {"": value}
    said = ", ".join(f"{key}: {part}" if key else f"{part}" for key, part in parts.items())
    return element("p", element("strong", "Paused"), " ", limited(said), class_="notice")


def cost(result: Result) -> Html | None:
    """What the run took, as far as the result says."""
    usage = record(result, "usage")
    seconds, mode = number(result.get("seconds")), result.get("mode")
    parts = [f"{seconds:.2f} s"] if seconds is not None else []
    if mode and graph_of(result) == "instruct_rag":
        parts.append(f"mode {mode}")
    for key, noun in _USAGE.items():
        amount = index(usage.get(key))
        if amount or (amount == 0 and key == "model_calls"):
            parts.append(counted(amount, noun))
    return element("p", " \u00b7 ".join(parts)) if parts else None


_USAGE = {
    "model_calls": "model call",
    "prompts": "prompt",
    "prompt_tokens": "prompt token",
    "generated_tokens": "generated token",
    "retrievals": "retrieval",
    "pruned": "pruned passage",
    "tokens_saved": "saved token",
}
