"""Bars and the tree of candidates, as SVG."""

from collections.abc import Mapping, Sequence
from typing import Any

from selfcorrect_rag.render.markup import Html, element, excerpt, joined
from selfcorrect_rag.render.reading import counted, index, number
from selfcorrect_rag.render.reasons import written

COLUMN, ROW, DOT = 120, 22, 5
"""Column width, row height and dot radius of the tree in pixels."""


def bar(
    label: str,
    value: float | None,
    low: float = 0.0,
    high: float = 1.0,
    ticks: Sequence[float] = (),
) -> Html:
    """A bar from zero to ``value`` on the scale [low, high], its label and its value as text.

    ``ticks`` are thresholds on the same scale. None is written as a dash and has no bar.
    """

    def x(at: float) -> float:
        return round(100 * (min(max(at, low), high) - low) / (high - low), 2)

    shapes = [element("rect", class_="track", x=0, y=3, width=100, height=4)]
    if value is not None:
        left, right = sorted((x(0), x(value)))
        sign = "fill" if value >= 0 else "fill negative"
        width = max(right - left, 0.5)
        shapes.append(element("rect", class_=sign, x=left, y=3, width=width, height=4))
    if low < 0 < high:
        shapes.append(element("rect", class_="zero", x=x(0) - 0.2, y=1, width=0.4, height=8))
    shapes += [
        element("rect", class_="tick", x=x(tick) - 0.4, y=0, width=0.8, height=10) for tick in ticks
    ]
    return element(
        "span",
        element("span", label, class_="label"),
        element(
            "svg",
            *shapes,
            class_="track-of",
            viewBox="0 0 100 10",
            preserveAspectRatio="none",
            aria_hidden="true",
        ),
        element("span", written(value), class_="value"),
        class_="bar",
    )


def tree(candidates: Sequence[Mapping[str, Any]], letter: str) -> Html:
    """All candidates as dots, a column per segment, joined to their parents.

    Chosen ones are filled, dropped ones dashed. Each is a link to its candidate, with its text as a
    tooltip, and labelled with its passage, numbered after ``letter``, and its path score.
    """
    depths = [index(candidate.get("depth")) or 0 for candidate in candidates]
    columns: dict[int, list[int]] = {}
    for i, depth in enumerate(depths):
        columns.setdefault(depth, []).append(i)
    height = ROW * max(map(len, columns.values())) + 2 * ROW
    width = COLUMN * (max(columns) + 2)
    middle = (height + ROW) / 2  # below the names of the columns
    positions = {
        i: (2 * DOT + COLUMN * (depth + 1), middle + ROW * (row - (len(column) - 1) / 2))
        for depth, column in columns.items()
        for row, i in enumerate(column)
    }
    root = (2 * DOT, middle)
    order = sorted(positions, key=lambda i: bool(candidates[i].get("chosen")))  # chosen on top
    edges, dots = [], [element("circle", class_="root", cx=root[0], cy=f"{root[1]:g}", r=DOT)]
    for i in order:
        candidate, (cx, cy) = candidates[i], positions[i]
        chosen, parent = bool(candidate.get("chosen")), index(candidate.get("parent"))
        kind = "chosen" if chosen else "dropped" if candidate.get("dropped") else None
        if parent in positions or not depths[i]:
            x, y = positions.get(parent, root) if parent is not None else root
            bend = (x + cx) / 2
            line = f"M{x:g} {y:g}C{bend:g} {y:g} {bend:g} {cy:g} {cx:g} {cy:g}"
            edges.append(element("path", class_=kind, d=line))
        passage, score = index(candidate.get("passage")), number(candidate.get("path_score"))
        name = f"{'' if passage is None else f'{letter}{passage + 1} '}{written(score)}"
        said = excerpt(candidate.get("text") or "no text")
        why = f" (dropped: {excerpt(candidate['dropped'], 80)})" if kind == "dropped" else ""
        dots.append(
            element(
                "a",
                element("title", f"{name}: {said}{why}"),
                element("circle", class_=kind, cx=f"{cx:g}", cy=f"{cy:g}", r=DOT),
                element("text", name, class_=kind, x=f"{cx + 2 * DOT:g}", y=f"{cy + 4:g}"),
                href=f"#candidate-{i + 1}",
            )
        )
    heads = [
        element("text", f"Segment {depth + 1}", x=DOT + COLUMN * (depth + 1), y=ROW / 2)
        for depth in columns
    ]
    label = (
        f"Tree of {counted(len(candidates), 'candidate')} for {counted(len(columns), 'segment')}"
    )
    return element(
        "svg",
        joined(heads),
        joined(edges),
        joined(dots),
        class_="tree",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="group",
        aria_label=f"{label}; the chosen path is in the list below",
    )


def closed_set(options: Mapping[str, Any]) -> Html:
    """The summed scores of a closed set's answers, on the scale of the highest."""
    scores = {str(option): number(score) for option, score in options.items()}
    highest = max([score for score in scores.values() if score] or [1.0])
    return element(
        "ul",
        *(
            element(
                "li", bar(excerpt(option, 40), score, min(0.0, score or 0.0), max(highest, 1e-9))
            )
            for option, score in scores.items()
        ),
        class_="options",
    )
