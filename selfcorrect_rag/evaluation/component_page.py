"""The section of a report on the parts of methods: a table, and reliability curves."""

from collections.abc import Mapping, Sequence
from typing import Any

from selfcorrect_rag.errors import MissingExtra
from selfcorrect_rag.evaluation.plots import Line, plot
from selfcorrect_rag.evaluation.tables import figures, shown_interval
from selfcorrect_rag.render.markup import Html, element, joined, labelled

SHORT = (
    *("recall", "grade_auc", "action_accuracy", "strip_precision"),
    *("ISREL_auc", "ISSUP_auc", "ISUSE_auc", "confidence_auc"),
)
"""The parts that a terminal shows."""
LABELS = (
    "95 % bootstrap intervals over questions; where all items are alike they have no width. "
    "Behind them the number of items and of questions, and how many of these have labels of the "
    "row. Without one, a text counts as relevant that contains an accepted answer, which is less "
    "than relevance; a segment as supported that shares one with its passage. Compare precision "
    "with the share of all that is relevant: where that is 1 or 0, labels tell nothing apart."
)
CURVES = (
    "Items in bins of as many each: their mean score against the share that the labels call "
    "good. On the dotted line a score is a probability. Grades g are drawn as (1 + g) / 2, which "
    "is one only of an evaluator trained by regression to -1 and 1; of others a rising curve says "
    "that higher grades mean more. The expected calibration error is raised by chance."
)


def render_components(made: Mapping[str, Any]) -> Html:
    """The section's content.

    Args:
        made: ``components`` of a summary.
    """
    rows = component_rows(made)
    if not rows:
        return element("p", "Nothing could be measured: no question has labels or answers.")
    curves = [part for name in _names(made, "calibration") for part in _curve(name, made)]
    return joined([figures(["part", *made], rows), labelled(LABELS), *curves])


def component_rows(made: Mapping[str, Any], *, short: bool = False) -> list[list[str]]:
    """A row for each part that some method has, a cell for each method; ``short``: of ``SHORT``."""
    return [
        [
            name.replace("_auc", " AUC").replace("_", " "),
            *(_cell(of["parts"][name], short) for of in made.values()),
        ]
        for name in _names(made, "parts")
        if name in SHORT or not short
    ]


def _names(made: Mapping[str, Any], of: str) -> list[str]:
    """What some method has."""
    every = dict.fromkeys(name for each in made.values() for name in each[of])
    return [name for name in every if any(each[of][name] for each in made.values())]


def _cell(part: Mapping[str, Any] | None, short: bool) -> str:
    if part is None:
        return "-" if short else "\u2013"
    value = f"{part['value']:.3f} {shown_interval(part['interval'])}"
    if short:
        return value
    return f"{value} of {part['items']:,}; {part['questions']:,}, {part['labels']['row']:,} by row"


def _curve(name: str, made: Mapping[str, Any]) -> Sequence[Html | None]:
    """The plot of one score, a line for each method that has it, and its errors."""
    curves = {
        method: of["calibration"][name] for method, of in made.items() if of["calibration"][name]
    }
    errors = [
        [method, f"{c['error']:.3f} {shown_interval(c['interval'])}", f"{c['items']:,}"]
        for method, c in curves.items()
    ]
    lines = [
        Line(
            method,
            [(each["score"], each["share"]) for each in curve["bins"]],
            [(_end(each, 0), _end(each, 1)) for each in curve["bins"]],
        )
        for method, curve in curves.items()
    ]
    try:
        drawn: Html | None = Html(plot(lines, name, "share that is good", diagonal=True))
    except MissingExtra as error:
        drawn = labelled(f"No plot: {error}")
    head = element("h3", f"Calibration: {name}")
    table = figures(["method", "expected calibration error", "items"], errors)
    return [head, drawn, table, labelled(CURVES) if name == "grade" else None]


def _end(point: Mapping[str, Any], side: int) -> float:
    """An end of a bin's interval; 0 or 1 where nothing bounds it."""
    end: float | None = point["interval"][side]
    return float(side) if end is None else end
