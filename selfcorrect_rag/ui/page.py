"""Renders a run as one self-contained HTML page, for a file, a notebook or the local page."""

import base64
import hashlib
import html
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from selfcorrect_rag.errors import require
from selfcorrect_rag.ui.view import Result, view, visible

NOTEBOOK_HEIGHT = 640
"""Height of a frame in CSS pixels, if a notebook does not measure it."""


@cache
def templates() -> Any:
    """Return the environment of all templates, autoescaped."""
    jinja2 = require("jinja2", "ui")
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("selfcorrect_rag.ui"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters["number"] = _number
    return made


@cache
def style() -> str:
    """Return the style sheet of all pages."""
    return files("selfcorrect_rag.ui").joinpath("style.css").read_text(encoding="utf-8")


def render_run(result: Result, *, title: str | None = None) -> str:
    """Render a run as one page, with no script and no request to anywhere.

    Args:
        result: of any graph, or the JSON of ``ask --json``. Any key may be missing, as in a run
            that was interrupted.
        title: put above the question; by default the graph's name.

    Returns:
        HTML. All text of the run is escaped; characters that reorder or hide text are shown by
        their code points; only http and https addresses become links; texts over 20,000 characters
        are cut.

    Raises:
        MissingExtra: jinja2 is not installed.
    """
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    page: str = (
        templates()
        .get_template("page.html")
        .render(run=view(result), title=visible(title or ""), style=style(), style_hash=digest)
    )
    return page


@dataclass(frozen=True)
class RunPage:
    """A page that a notebook shows in a frame, so that styles do not mix."""

    html: str = field(repr=False)
    height: int = NOTEBOOK_HEIGHT
    """Height of the frame in CSS pixels."""

    def _repr_html_(self) -> str:
        """Return the frame, in which no script runs."""
        return (
            f'<iframe title="A run" srcdoc="{html.escape(self.html)}" '
            'sandbox="allow-popups allow-popups-to-escape-sandbox" '
            f'style="width:100%;height:{int(self.height)}px;border:0;resize:vertical"></iframe>'
        )


def show_run(result: Result, *, title: str | None = None, height: int = NOTEBOOK_HEIGHT) -> RunPage:
    """Return the page of :func:`render_run` for a notebook: make it the last value of a cell."""
    return RunPage(render_run(result, title=title), height)


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # no -0.00
