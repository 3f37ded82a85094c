"""Renders a run's answer with linked citations, rationale and notes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from selfcorrect_rag.prompts.marks import marks_in
from selfcorrect_rag.render.evidence import LETTERS, pointer
from selfcorrect_rag.render.markup import (
    LINES,
    Html,
    address,
    element,
    excerpt,
    folded,
    joined,
    labelled,
    marked,
    prose,
)
from selfcorrect_rag.render.reading import (
    Result,
    cost,
    graph_of,
    index,
    knowledge_of,
    number,
    records,
    rows,
    why_uncited,
)
from selfcorrect_rag.render.reasons import written
from selfcorrect_rag.state.sources import shown_source, title_line

LONG = 3_000
"""Characters of an answer or a rationale shown unfolded."""
NAMED = re.compile(r"\bdocuments?\s+\[?(\d{1,3})\b\]?|\[(\d{1,3})\]", re.IGNORECASE)
"""Mentions of documents in a rationale."""


def answer(result: Result) -> Html:
    """The answer with its citations, its score, and whether it broke a constraint."""
    name, found = knowledge_of(result)
    citations = records(result, "citations")
    targets = {
        str(citation.get("number")): index(citation.get("passage"), found) for citation in citations
    }

    most = max((int(number) for number in targets if number.isdecimal()), default=0)

    def links(part: str) -> Iterator[tuple[int, int, object]]:
        for mark in marks_in(part, most):
            at = targets.get(str(mark.numbers[0])) if len(mark.numbers) == 1 else None
            if at is not None:
                yield mark.start, mark.end, element("sup", pointer(name, at, mark.text))

    given = str(result.get("cited_answer") or result.get("answer") or "").strip()
    body = labelled("No answer was written.", "answer none")
    if given:
        body = prose(given, LONG, kind="answer", inline=lambda part: marked(part, links(part)))
    is_broken = result.get("constraints_met") is False
    score, uncited = number(result.get("score")), why_uncited(result)
    return joined(
        [
            body,
            labelled(is_broken and "The best of what broke a hard constraint.", "notice"),
            labelled("" if score is None else f"path score {written(score)}"),
            _references(
                citations, name, targets, given, is_numbered=graph_of(result) == "instruct_rag"
            ),
            labelled(uncited and f"{uncited.capitalize()}: nothing is cited."),
        ]
    )


def _references(
    citations: list[Mapping[str, Any]],
    name: str,
    targets: Mapping[str, int | None],
    said: str,
    *,
    is_numbered: bool,
) -> Html | None:
    """The citations, each with its sentence where that says more than what was ``said``; where
    documents ``is_numbered`` as the citations are, once is enough."""
    if not citations:
        return None
    items = []
    for citation in citations:
        mark = f"[{citation.get('number')}]"
        title = excerpt(title_line(citation.get("title")) or "Untitled")
        source = shown_source(citation.get("source"))
        quote = excerpt(citation.get("quote") or "", LINES)
        at = targets.get(str(citation.get("number")))
        link = title if at is None else pointer(name, at, title)
        items.append(
            element(
                "li",
                element("span", f"{mark} ", class_="number"),
                element("bdi", link),
                *([", ", element("bdi", address(source))] if source not in ("", title) else []),
                None if at is None or is_numbered else f" ({LETTERS[name]}{at + 1})",
                labelled("" if quote in said else quote, tag="q"),
            )
        )
    return element("ol", *items, class_="references", aria_label="Citations")


def rationale(result: Result) -> Html | None:
    """InstructRAG's rationale, with links from the documents it names."""
    given = str(result.get("rationale") or "").strip()
    if not given:
        return None
    numbering = rows(result, "numbering")
    found = rows(result, "passages")

    def links(part: str) -> Iterator[tuple[int, int, object]]:
        for match in NAMED.finditer(part):
            at = int(match[1] or match[2]) - 1
            shown = index(numbering[at], found) if 0 <= at < len(numbering) else None
            if shown is not None:
                yield *match.span(), pointer("passage", shown, match[0])

    return prose(given, LONG, inline=lambda part: marked(part, links(part)))


def demonstrations(result: Result) -> Html | None:
    """The examples that the model was shown."""
    shown = records(result, "demonstrations")
    if not shown:
        return None
    return joined(
        folded(
            excerpt(demonstration.get("question") or ""),
            prose(
                demonstration.get("rationale")
                or ", ".join(map(str, rows(demonstration, "answers")))
            ),
        )
        for demonstration in shown
    )


def notes(result: Result) -> Html | None:
    """Fallbacks taken, limits met, and what a paused run waits for."""
    waiting = [_paused(interrupt) for interrupt in rows(result, "__interrupt__")]
    items = [element("li", excerpt(note, LINES), dir="auto") for note in rows(result, "notes")]
    if not (waiting or items):
        return None
    return joined([*waiting, element("ul", *items, class_="notes") if items else None])


def _paused(interrupt: object) -> Html:
    """An interrupt, be it an object or JSON."""
    value = interrupt.get("value") if isinstance(interrupt, Mapping) else None
    value = getattr(interrupt, "value", value)
    parts = value if isinstance(value, Mapping) else {"": value}
    asks = ", ".join(f"{key}: {part}" if key else f"{part}" for key, part in parts.items())
    return element("p", element("strong", "Paused"), " ", excerpt(asks, LINES), class_="notice")


def footer(result: Result) -> Html | None:
    """The cost of the run, and InstructRAG's mode."""
    parts = cost(result)
    if result.get("mode") and graph_of(result) == "instruct_rag":
        parts.append(f"mode {excerpt(result['mode'], 40)}")
    return element("p", " \u00b7 ".join(parts)) if parts else None
