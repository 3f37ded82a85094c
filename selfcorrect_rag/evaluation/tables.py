"""Tables of a report."""

from collections.abc import Iterable, Sequence

from selfcorrect_rag.render.markup import Html, element


def shown_interval(ends: Sequence[float | None] | None) -> str:
    """``[0.333, 1.000]``; words where nothing bounds it, nothing where a value has none."""
    if ends is None:
        return ""
    low, high = ends
    return "[unknown]" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"


def figures(columns: Sequence[str], rows: Iterable[Sequence[str]], *, wraps: bool = False) -> Html:
    """A table whose first column names its rows; ``wraps`` where cells are texts."""
    head = element("tr", *(element("th", column, scope="col") for column in columns))
    body = [
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in rest))
        for first, *rest in rows
    ]
    return element("div", element("table", head, *body), class_=None if wraps else "figures")
