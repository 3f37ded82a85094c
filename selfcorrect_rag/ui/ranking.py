"""Why this one: candidates by their scores, each a sum of its terms; documents and strips by
theirs."""

from collections.abc import Mapping, Sequence
from typing import Any

from selfcorrect_rag.render.charts import bar
from selfcorrect_rag.render.evidence import LETTERS, pointer
from selfcorrect_rag.render.markup import Html, element, excerpt, folded, joined, labelled
from selfcorrect_rag.render.reading import (
    Result,
    Shown,
    counted,
    documents,
    index,
    knowledge_of,
    number,
    records,
    thresholds,
)
from selfcorrect_rag.render.reasons import LEGEND, path_sum, score_sum, written
from selfcorrect_rag.ui.replay import Replay

MOST_ROWS = 12
"""Rows shown unfolded."""
TONES = 5
"""Colours of terms."""


def ranking(run: Result, replay: Replay | None = None) -> Html | None:
    """The candidates of each segment, the graded documents and the strips, best first.

    Args:
        run: a run's result.
        replay: the run with other settings, which is shown then: how far a candidate has moved is
            told.
    """
    result = replay.result if replay else run
    parts = [_candidates(run, replay), _grades(result), _strips(result)]
    return joined(parts) if any(parts) else None


def _candidates(run: Result, replay: Replay | None) -> Html | None:
    result = replay.result if replay else run
    found = records(result, "candidates")
    if not found:
        return None
    names = list(dict.fromkeys(str(t.get("name")) for c in found for t in records(c, "terms")))
    spans = [_span(c) for c in found]
    low, high = min(low for low, _ in spans), max(high for _, high in spans)
    kind, texts = knowledge_of(result)
    depths = sorted({index(c.get("depth")) or 0 for c in found})
    lists: list[Html | None] = []
    for depth in depths:
        was = [at for at, _ in ranked(run, depth)]
        items = []
        for rank, (at, c) in enumerate(ranked(result, depth), start=1):
            own = replay.origins[at] if replay else at
            moved = was.index(own) + 1 - rank
            scale = low, max(high, low + 1e-9)
            items.append(_row(rank, at, own, moved, c, kind, texts, names, scale))
        if len(depths) > 1:
            lists.append(element("h3", f"Segment {depth + 1}"))
        lists.append(_listed(items, "ranking"))
    return joined([_legend(names), *lists])


def _listed(rows: Sequence[Html], kind: str) -> Html:
    """A list of rows; those beyond the first are folded."""
    shown = element("ol", *rows[:MOST_ROWS], class_=kind)
    if not (rest := rows[MOST_ROWS:]):
        return shown
    more = element("ol", *rest, class_=kind, start=MOST_ROWS + 1)
    return joined([shown, folded(f"{len(rest)} more", more)])


def ranked(result: Result, depth: int) -> list[tuple[int, Mapping[str, Any]]]:
    """The candidates for a segment with their indices: those that may be chosen, best first, then
    those that are dropped."""
    of_depth = [
        (at, c)
        for at, c in enumerate(records(result, "candidates"))
        if (index(c.get("depth")) or 0) == depth
    ]
    return sorted(
        of_depth,
        key=lambda row: (bool(row[1].get("dropped")), -(number(row[1]["path_score"]) or 0)),
    )


def _span(candidate: Mapping[str, Any]) -> tuple[float, float]:
    """Where the stacked terms begin and end; below 0 stands what is negative."""
    each = [_product(term) for term in records(candidate, "terms")]
    return sum(min(value, 0.0) for value in each), sum(max(value, 0.0) for value in each)


def _product(term: Mapping[str, Any]) -> float:
    return (number(term.get("weight")) or 0.0) * (number(term.get("value")) or 0.0)


def _row(
    rank: int,
    at: int,
    own: int,
    moved: int,
    candidate: Mapping[str, Any],
    kind: str,
    texts: Sequence[Shown],
    names: Sequence[str],
    scale: tuple[float, float],
) -> Html:
    """A candidate at its rank; ``at`` is its index in what is shown, ``own`` that in the run."""
    chosen, dropped = bool(candidate.get("chosen")), candidate.get("dropped")
    passage = index(candidate.get("passage"), texts)
    source: object = "no passage"
    if passage is not None:
        label = f"{LETTERS[kind]}{passage + 1} {excerpt(texts[passage].title, 50)}".strip()
        source = pointer(kind, passage, label)
    score = number(candidate.get("score"))
    path = path_sum(candidate)
    shown = number(candidate.get("path_score")) if path else score
    return element(
        "li",
        element("span", str(rank), class_="rank", aria_hidden="true"),
        element(
            "div",
            element(
                "p",
                element(
                    "a",
                    excerpt(candidate.get("text") or "no text", 120),
                    href=f"#candidate-{at + 1}",
                ),
                class_="said",
                dir="auto",
            ),
            element(
                "p",
                element("bdi", source),
                labelled(chosen and "chosen", "badge chosen", "span"),
                labelled(dropped and f"dropped: {excerpt(dropped, 60)}", "badge dropped", "span"),
                _moved(moved),
                class_="from",
            ),
            class_="what",
        ),
        _stack(candidate, names, scale),
        element("strong", written(shown), class_="score"),
        element("p", score_sum(candidate), class_="sum"),
        labelled(path and f"path: {path}", "sum"),
        data_key=own,
        class_=f"rank-row{' chosen' if chosen else ' dropped' if dropped else ''}",
    )


def _moved(by: int) -> Html | None:
    if not by:
        return None
    way = "up" if by > 0 else "down"
    arrow = "\u2191" if by > 0 else "\u2193"
    label = f"{way} {counted(abs(by), 'place')}"
    return element("span", f"{arrow} {abs(by)}", class_=f"moved {way}", title=label)


def _stack(candidate: Mapping[str, Any], names: Sequence[str], scale: tuple[float, float]) -> Html:
    """The terms of a score, next to each other; those below zero to its left."""
    low, high = scale

    def x(at: float) -> float:
        return round(100 * (at - low) / (high - low), 2)

    left = right = 0.0
    shapes = [element("rect", class_="track", x=0, y=0, width=100, height=10)]
    for term in records(candidate, "terms"):
        value, name = _product(term), str(term.get("name"))
        begin = right if value >= 0 else left + value
        tone = f"tone-{names.index(name) % TONES}"
        title = element("title", f"{name[:40]} {written(value)}")
        width = round(abs(value) * 100 / (high - low), 2)
        shapes.append(element("rect", title, class_=tone, x=x(begin), y=0, width=width, height=10))
        right, left = (right + value, left) if value >= 0 else (right, left + value)
    if low < 0:
        shapes.append(element("rect", class_="zero", x=x(0) - 0.15, y=0, width=0.3, height=10))
    return element(
        "svg",
        *shapes,
        class_="stack",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _legend(names: Sequence[str]) -> Html:
    return element(
        "ul",
        *(
            element(
                "li",
                element(
                    "svg",
                    element("rect", class_=f"tone-{i % TONES}", width=10, height=10),
                    viewBox="0 0 10 10",
                    class_="swatch",
                    aria_hidden="true",
                ),
                excerpt(name, 40),
                title=LEGEND.get(name),
            )
            for i, name in enumerate(names)
        ),
        class_="legend",
        aria_label="The terms of a score",
    )


def _grades(result: Result) -> Html | None:
    """The documents by the evaluator's scores, against both thresholds."""
    grades = [g for g in records(result, "grades") if number(g.get("score")) is not None]
    if not grades:
        return None
    ticks = sorted(cut for cut in thresholds(result) if cut is not None)
    texts = documents(result, "passages")
    rows = []
    for grade in sorted(grades, key=lambda grade: -(number(grade.get("score")) or 0.0)):
        at = index(grade.get("document"), texts)
        title = excerpt(grade.get("title") or "Untitled", 60)
        link = title if at is None else pointer("passage", at, f"P{at + 1} {title}")
        rows.append(
            element("li", element("bdi", link), bar("", number(grade.get("score")), -1, 1, ticks))
        )
    return joined([element("h3", "Documents by the evaluator"), _listed(rows, "graded")])


def _strips(result: Result) -> Html | None:
    """The strips of documents and pages by their scores."""
    lists = []
    for key, heading in (("strips", "Strips"), ("web_strips", "Strips of the web")):
        found = [s for s in records(result, key) if number(s.get("score")) is not None]
        if not found:
            continue
        found.sort(key=lambda s: (not s.get("kept"), -(number(s.get("score")) or 0.0)))
        rows = [
            element(
                "li",
                element("span", excerpt(s.get("text"), 110), dir="auto", class_="said"),
                labelled(s.get("kept") and "kept", "badge chosen", "span"),
                element("span", written(number(s.get("score"))), class_="score"),
                class_="kept" if s.get("kept") else "dropped",
            )
            for s in found
        ]
        kept = sum(bool(s.get("kept")) for s in found)
        lists += [
            element("h3", f"{heading}: {kept} of {len(found)} kept"),
            _listed(rows, "strip-list"),
        ]
    return joined(lists) if lists else None
