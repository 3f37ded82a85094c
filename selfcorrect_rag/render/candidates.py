"""The retrieval decision of a run and its candidates, by segment and beam, with critiques."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from selfcorrect_rag.reflection import GROUPS
from selfcorrect_rag.render.charts import bar, closed_set, tree
from selfcorrect_rag.render.evidence import LETTERS, pointer
from selfcorrect_rag.render.markup import (
    LINES,
    Html,
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
    counted,
    decision,
    index,
    knowledge_of,
    number,
    record,
    records,
)
from selfcorrect_rag.render.reasons import LEGEND, path_sum, score_sum, written

Row = tuple[int, Mapping[str, Any]]
"""A candidate and its index."""


def retrieval(result: Result) -> Html | None:
    """Whether evidence was wanted, and why."""
    decided = decision(result)
    if decided is None:
        return None
    verb, why = decided
    given = record(result, "retrieval")
    probability, threshold = number(given.get("probability")), number(given.get("threshold"))
    ticks = [] if threshold is None else [threshold]
    chart = None if probability is None else bar("P(retrieve)", probability, ticks=ticks)
    words = element("p", element("strong", verb.capitalize()), f": {excerpt(why, 80)}")
    return joined([words, chart])


def candidates(result: Result) -> Html | None:
    """Every candidate of every segment, beam by beam, after the tree and the chosen path."""
    found = records(result, "candidates")
    if not found:
        return None
    kind, documents = knowledge_of(result)
    every = list(enumerate(found))
    parts: list[object] = []
    if any(index(c.get("depth")) for c in found):
        parts += [
            element("figure", tree(found, LETTERS[kind]), element("figcaption", _LEGEND)),
            _path(every),
        ]
    options = record(result, "options")
    if options:
        parts += [element("h3", "Summed by answer"), closed_set(options)]
    several = len({index(c.get("depth")) for c in found}) > 1
    for depth, new in groupby(every, key=lambda row: index(row[1].get("depth")) or 0):
        if several:
            parts.append(element("h3", f"Segment {depth + 1}"))
        for beam, group in groupby(new, key=lambda row: index(row[1].get("beam")) or 0):
            rows = list(group)
            if depth:
                parts.append(_beam(beam, rows[0][1], found))
            parts.append(_list(rows, kind, documents, several))
    parts.append(folded("What the scores mean", _legend()))
    return joined(parts)


def _legend() -> Html:
    terms = (
        part
        for name, meaning in LEGEND.items()
        for part in (element("dt", name), element("dd", meaning))
    )
    return element("dl", *terms)


_LEGEND = (
    "A column is a segment of the answer, a dot a candidate, with its passage and its path score; "
    "filled ones are the chosen path. A dot leads to its candidate."
)


def _path(every: Sequence[Row]) -> Html | None:
    """The chosen segments in their order."""
    chosen = [(i, c) for i, c in every if c.get("chosen")]
    if not chosen:
        return None
    steps = [
        element(
            "li",
            element("a", excerpt(c.get("text") or "no text", LINES), href=f"#candidate-{i + 1}"),
            element("span", f" {written(number(c.get('path_score')))}", class_="aside"),
            dir="auto",
        )
        for i, c in chosen
    ]
    return joined([element("h3", "The chosen path"), element("ol", *steps, class_="path")])


def _beam(beam: int, first: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Html:
    parent = index(first.get("parent"), found)
    after: list[object] = []
    if parent is not None:
        label = excerpt(found[parent].get("text") or "no text")
        link = element("a", label, href=f"#candidate-{parent + 1}")
        after = [" continues ", element("bdi", link)]
    return element("p", element("strong", f"Beam {beam + 1}"), *after, class_="beam")


def _list(rows: Sequence[Row], kind: str, documents: Sequence[Shown], several: bool) -> Html:
    """The candidates of a beam: the chosen ones, then the rest, folded, best first."""

    def listed(some: Sequence[Row]) -> Html:
        return element(
            "ol",
            *(_card(i, c, kind, documents, several) for i, c in some),
            class_="documents candidates",
        )

    def rank(row: Row) -> tuple[bool, float]:
        return bool(row[1].get("dropped")), -(number(row[1].get("path_score")) or 0.0)

    chosen = [row for row in rows if row[1].get("chosen")]
    rest = sorted((row for row in rows if not row[1].get("chosen")), key=rank)
    other = "other candidate" if chosen else "candidate"
    return joined(
        [
            listed(chosen) if chosen else None,
            folded(f"{counted(len(rest), other)}, best first", listed(rest)) if rest else None,
        ]
    )


def _card(
    at: int, candidate: Mapping[str, Any], kind: str, documents: Sequence[Shown], several: bool
) -> Html:
    passage = index(candidate.get("passage"))
    there = index(passage, documents)
    title = "" if there is None else documents[there].title
    from_: list[object] = ["without a passage"]
    if passage is not None:
        label = f"{LETTERS[kind]}{passage + 1} {excerpt(title)}".strip()
        link = label if there is None else pointer(kind, there, label)
        from_ = ["still " if candidate.get("step") == "continue" else "", element("bdi", link)]
    dropped, chosen = candidate.get("dropped"), bool(candidate.get("chosen"))
    state = "chosen" if chosen else "dropped" if dropped else ""
    score = written(number(candidate.get("score")))
    scores = [f"score {score}"]
    if several:
        scores.append(f"path {written(number(candidate.get('path_score')))}")
    return element(
        "li",
        element(
            "div",
            element("span", *from_, class_="number"),
            labelled(chosen and "chosen", "badge chosen", "span"),
            labelled(dropped and f"dropped: {excerpt(dropped, 80)}", "badge", "span"),
            element("span", " \u00b7 ".join(scores), class_="score"),
            class_="head",
        ),
        prose(candidate.get("text") or "no text"),
        element(
            "div",
            *(_score(name, number(value)) for name, value in record(candidate, "critique").items()),
            bar("p(y)", number(candidate.get("sequence_probability"))),
            class_="bars",
        ),
        labelled(score_sum(candidate) and f"score: {score_sum(candidate)}", "aside sum"),
        labelled(path_sum(candidate) and f"path: {path_sum(candidate)}", "aside sum"),
        _judgements(record(candidate, "judgements")),
        id=f"candidate-{at + 1}",
        class_=f"card {state}".strip(),
    )


def _score(group: str, score: float | None) -> Html:
    """A critique score on the scale of its group."""
    known = GROUPS.get(group)
    low, high = (min(0.0, *known.values), max(1.0, *known.values)) if known else (-1.0, 1.0)
    return bar(excerpt(group, 40), score, low, high)


def _judgements(judgements: Mapping[str, Any]) -> Html | None:
    """The probability of each reflection token that the model weighed."""
    rows = [
        element(
            "tr",
            element("th", excerpt(group, 40), scope="row"),
            element(
                "td",
                *(
                    element(
                        "span",
                        f"{excerpt(token, 40)} {written(number(probability))} ",
                        class_="token",
                    )
                    for token, probability in record(judgements, group).items()
                ),
            ),
        )
        for group in judgements
    ]
    return folded("reflection tokens", element("table", *rows)) if rows else None
