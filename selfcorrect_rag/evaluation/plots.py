"""Plots of an evaluation as SVG, by matplotlib."""

import io
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from selfcorrect_rag.errors import require

INCHES = (5.2, 3.4)
"""Width and height of a plot."""
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7b4ea3", "#8a6d00", "#2b8a8a", "#a33b6b", "#555555")


_STYLE = re.compile(r'(?<=\s)style="([^"]*)"')
_DECLARATION = re.compile(r"([\w-]+): ([^;]+)(?:;|$)")
_STYLE_SHEET = re.compile(r"<style.*?</style>", re.DOTALL)
_ROUND = 'stroke-linejoin="round" stroke-linecap="butt"'
"""What matplotlib's style sheet says of all elements."""


class Line(NamedTuple):
    """One line of a plot."""

    name: str
    points: Sequence[tuple[float, float]]
    """x and y, drawn in this order."""
    ends: Sequence[tuple[float, float]] = ()
    """Low and high end of each point's interval; empty: none is drawn."""


def plot(
    lines: Sequence[Line],
    x: str,
    y: str,
    *,
    diagonal: bool = False,
    at: Sequence[str] | None = None,
) -> str:
    """An SVG element with the lines, both axes named; the same lines give the same text.

    Args:
        lines: at least one.
        x: the name of the horizontal axis, with its unit where it has one.
        y: that of the vertical axis.
        diagonal: draw the line from (0, 0) to (1, 1), where a calibrated score lies.
        at: names of the x positions 0, 1, 2 ..., for values that are no numbers.

    Raises:
        MissingExtra: matplotlib is not installed (the extra ``evaluation``).
    """
    figure = require("matplotlib.figure", "evaluation").Figure(INCHES, layout="constrained")
    axes: Any = figure.add_subplot()
    if diagonal:
        axes.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle=":")
    for number, line in enumerate(lines):
        xs, ys = zip(*line.points, strict=True) if line.points else ((), ())
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(xs, ys, color=colour, marker="o", markersize=3.5, label=_plain(line.name))
        if line.ends:
            lows, highs = zip(*line.ends, strict=True)
            axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0)
    if at is not None:
        axes.set_xticks(range(len(at)), [_plain(name) for name in at])
    axes.set_xlabel(_plain(x))
    axes.set_ylabel(_plain(y))
    axes.grid(color="#dddddd", linewidth=0.6)
    if len(lines) > 1:
        axes.legend(fontsize="small")
    return _svg(figure)


def _plain(text: str) -> str:
    """Text in which a dollar sign begins no formula."""
    return text.replace("$", r"\$")


def _svg(figure: Any) -> str:
    drawn = io.StringIO()
    # A salt and no date: the same plot is the same text. Letters stay text, not outlines.
    options = {"svg.hashsalt": "selfcorrect-rag", "svg.fonttype": "none"}
    with require("matplotlib", "evaluation").rc_context(options):
        figure.savefig(drawn, format="svg", metadata={"Date": None})
    svg = drawn.getvalue()[drawn.getvalue().index("<svg") :]
    # The policy of our pages lets no other style in; attributes say the same.
    svg = _STYLE_SHEET.sub("", svg, count=1).replace("<svg", f"<svg {_ROUND}", 1)
    return _STYLE.sub(lambda found: _DECLARATION.sub(r'\1="\2"', found[1]), svg)
