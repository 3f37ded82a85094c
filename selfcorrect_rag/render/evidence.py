"""The texts that a run read: documents with scores, strips kept and dropped, web, knowledge."""

from collections.abc import Mapping, Sequence
from typing import Any

from selfcorrect_rag.render.charts import bar
from selfcorrect_rag.render.markup import (
    LINES,
    Html,
    address,
    element,
    excerpt,
    folded,
    joined,
    labelled,
    prose,
)
from selfcorrect_rag.render.reading import (
    Result,
    Shown,
    action,
    documents,
    graph_of,
    index,
    knowledge_of,
    number,
    records,
    rows,
    strips_kept,
    thresholds,
    verdict,
)
from selfcorrect_rag.render.reasons import written

LETTERS = {"passage": "P", "web": "W", "knowledge": "K"}


def pointer(kind: str, at: int, label: object = None) -> Html:
    """A link to a document of the page; ``label`` replaces its number."""
    return element("a", label or f"{LETTERS[kind]}{at + 1}", href=f"#{kind}-{at + 1}")


def correction(result: Result) -> Html | None:
    """CRAG's action, and the scores that led to it."""
    taken = action(result)
    if taken is None:
        return None
    name, why = taken
    marked = None not in thresholds(result) and records(result, "grades")
    return element(
        "p",
        element("strong", name.capitalize(), class_=f"action {name}"),
        element("span", f": {why}{' (marked on the bars)' if marked else ''}", class_="aside"),
    )


def passages(result: Result) -> Html | None:
    """The documents retrieved or given, with grades and strips, or the rationale's verdicts."""
    found = documents(result, "passages")
    if not found:
        return None
    if graph_of(result) == "instruct_rag":
        return _numbered(result, found)
    ticks = sorted(cut for cut in thresholds(result) if cut is not None)
    grades = {
        grade.get("document"): number(grade.get("score")) for grade in records(result, "grades")
    }
    refined, taken = records(result, "strips"), action(result)
    cards = []
    for i, shown in enumerate(found):
        strips = _of(result, "strips", i)
        graded = bar("evaluator", grades[i], -1, 1, ticks) if i in grades else None
        used = _any_kept(strips) if refined else not taken or taken[0] != "incorrect"
        cards.append((used, grades.get(i), _card("passage", i, shown, graded, strips=strips)))
    return _used_first(cards)


def _used_first(cards: Sequence[tuple[bool, float | None, Html]]) -> Html:
    """Documents: those used as they come, then the others, folded, best first."""
    used = [card for use, _, card in cards if use]
    others = sorted((card for card in cards if not card[0]), key=lambda card: -(card[1] or 0.0))
    rest = element("ol", *(card for _, _, card in others), class_="documents")
    words = f"{len(others)} {'others, not used' if used else 'not used'}, best first"
    return joined(
        [
            element("ol", *used, class_="documents") if used else None,
            folded(words, rest) if others else None,
        ]
    )


def _any_kept(strips: Sequence[Mapping[str, Any]]) -> bool:
    return any(strip.get("kept") for strip in strips)


def _numbered(result: Result, found: Sequence[Shown]) -> Html:
    """InstructRAG's documents as the prompt numbered them; those that did not fit come last."""
    numbering = [i for i in rows(result, "numbering") if index(i, found) is not None]
    cards = []
    for number_, i in enumerate(numbering, start=1):
        judged = verdict(result, i)
        badge = element("span", judged, class_=f"badge {judged.replace(' ', '-')}")
        card = _card("passage", i, found[i], badge, label=f"Document [{number_}]")
        cards.append((judged != "dismissed", found[i].score, card))
    for i in range(len(found)):
        if i not in numbering:
            badge = element("span", "not shown to the model", class_="badge")
            cards.append((False, found[i].score, _card("passage", i, found[i], badge)))
    return _used_first(cards)


def web(result: Result) -> Html | None:
    """The web search, and what was kept of its pages."""
    query, failure = result.get("web_query"), result.get("web_failure")
    if not (query or failure):
        return None
    source = result.get("web_source")
    lead: list[object] = ["Not searched yet: "]
    if source:
        lead = ["Searched ", element("bdi", excerpt(source)), " for "]
    return joined(
        [
            element("p", *lead, element("q", excerpt(query, LINES))),
            labelled(failure and excerpt(failure, LINES), "notice"),
            _used_first(
                [
                    (
                        not strips or _any_kept(strips),
                        None,
                        _card("web", i, shown, None, strips=strips),
                    )
                    for i, shown in enumerate(documents(result, "web_results"))
                    for strips in [_of(result, "web_strips", i)]
                ]
            ),
        ]
    )


def knowledge(result: Result) -> Html | None:
    """CRAG's knowledge, each piece with the document that it is from."""
    name, found = knowledge_of(result)
    if name != "knowledge" or not found:
        return None
    origins = {
        (shown.id, shown.title, shown.source, text): pointer(kind, i)
        for kind, key, strips in (
            ("web", "web_results", "web_strips"),
            ("passage", "passages", "strips"),
        )
        for i, shown in enumerate(documents(result, key))
        for text in (shown.text, _kept(result, strips, i))
    }
    cards = []
    for i, shown in enumerate(found):
        origin = origins.get((shown.id, shown.title, shown.source, shown.text))
        badge = element("span", "from ", origin, class_="aside") if origin else None
        cards.append(_card("knowledge", i, shown, badge))
    return element("ol", *cards, class_="documents")


def _kept(result: Result, key: str, document: int) -> str:
    """The kept strips of a document, which tell the chunks of a file apart."""
    return " ".join(str(s.get("text")) for s in _of(result, key, document) if s.get("kept"))


def _of(result: Result, key: str, document: int) -> list[Mapping[str, Any]]:
    return [strip for strip in records(result, key) if strip.get("document") == document]


def _card(
    kind: str,
    at: int,
    shown: Shown,
    aside: Html | None,
    *,
    label: str = "",
    strips: Sequence[Mapping[str, Any]] = (),
) -> Html:
    """A document: its number, title and source, a badge or bar, and its text or strips."""
    source = address(shown.source)
    origin = [source] if shown.source and shown.source != shown.title else []
    if shown.score is not None:
        origin.append(f"retriever\u2019s score {written(shown.score, 3)}")
    return element(
        "li",
        element(
            "div",
            element("span", label or f"{LETTERS[kind]}{at + 1}", class_="number"),
            element("h3", excerpt(shown.title or "Untitled"), dir="auto"),
            aside,
            class_="head",
        ),
        element("p", *_separated(origin), class_="aside") if origin else None,
        _strips(strips) if strips else None,
        None if _whole(strips, shown.text) else prose(shown.text),
        id=f"{kind}-{at + 1}",
        class_="card",
    )


def _separated(parts: Sequence[object]) -> list[object]:
    pieces: list[object] = []
    for part in parts:
        pieces += [" \u00b7 ", element("bdi", part)]
    return pieces[1:]


def _whole(strips: Sequence[Mapping[str, Any]], document: str) -> bool:
    """Whether the strips are all of a document, as they always are where the graph cut it."""
    return " ".join(str(s.get("text")) for s in strips).split() == document.split()


def _strips(strips: Sequence[Mapping[str, Any]]) -> Html:
    """The strips kept, in the order of the text, then those dropped, folded, best first."""
    kept = [strip for strip in strips if strip.get("kept")]
    dropped = [strip for strip in strips if not strip.get("kept")]
    dropped.sort(key=lambda strip: -(number(strip.get("score")) or 0.0))
    return joined(
        [
            element("p", strips_kept({"strips": strips}, "strips"), class_="aside"),
            _listed(kept, "kept") if kept else None,
            folded(f"{len(dropped)} dropped, best first", _listed(dropped, "dropped"))
            if dropped
            else None,
        ]
    )


def _listed(strips: Sequence[Mapping[str, Any]], state: str) -> Html:
    return element(
        "ul",
        *(
            element(
                "li",
                prose(strip.get("text") or ""),
                bar(state, number(strip.get("score")), -1, 1),
                class_=state,
            )
            for strip in strips
        ),
        class_="strips",
    )
