"""A run in a notebook."""

import html
from dataclasses import dataclass, field

from selfcorrect_rag.render.page import run_page
from selfcorrect_rag.render.reading import Result

# A frame of this kind has its notebook's base address, to which "#passage-1" would lead.
_BASE = "about:srcdoc"


@dataclass(frozen=True)
class RunPage:
    """A page that a notebook shows in a frame of its own: neither's style reaches the other."""

    html: str = field(repr=False)
    height: int
    """Of the frame, in CSS pixels."""

    def _repr_html_(self) -> str:
        """The frame, in which no script runs."""
        return (
            f'<iframe title="A run" srcdoc="{html.escape(self.html)}" '
            'sandbox="allow-popups allow-popups-to-escape-sandbox" '
            f'style="width:100%;height:{int(self.height)}px;border:0;resize:vertical"></iframe>'
        )


def show_run(result: Result, *, title: str | None = None, height: int = 640) -> RunPage:
    """The page of :func:`render_run` for a notebook: make it the last value of a cell."""
    return RunPage(run_page(result, title=title, base=_BASE), height)
