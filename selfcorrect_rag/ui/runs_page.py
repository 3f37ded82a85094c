"""The page of all runs, with search and filters."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from selfcorrect_rag.render.markup import Html, element, excerpt
from selfcorrect_rag.render.reading import GRAPHS, counted
from selfcorrect_rag.ui.going import Going
from selfcorrect_rag.ui.layout import graph_name, head, page, when
from selfcorrect_rag.ui.store import MOST_RUNS, SHOWN, Run


def run_list(runs: Sequence[Run], going: Sequence[Going] = ()) -> Html:
    """Runs that go on, the newest first, and then those that are over, in their order."""
    rows = [
        element(
            "li",
            element("a", excerpt(run.question, 120), href=f"/runs/{run.id}", dir="auto"),
            element(
                "span",
                f"{graph_name(run.graph)} \u00b7 {'waits for you' if run.pause else 'goes on'}",
                class_="help",
            ),
            class_="live",
        )
        for run in reversed([*going])
    ]
    rows += [
        element(
            "li",
            element("a", excerpt(run.question, 120), href=f"/runs/{run.id}", dir="auto"),
            _mark(run),
            element("span", excerpt(run.error or run.answer, 140), class_="told", dir="auto"),
            element("span", *_about(run), class_="help"),
        )
        for run in runs
    ]
    return element("ul", *rows, class_="runs")


def _about(run: Run) -> list[object]:
    parts: list[object] = [graph_name(run.graph), " \u00b7 ", f"{run.seconds:.2f} s", " \u00b7 "]
    if run.state != "done":
        parts += [element("span", run.state, class_=f"state {run.state}"), " \u00b7 "]
    return [*parts, when(run.asked)]


def _mark(run: Run) -> Html | None:
    if not run.mark:
        return None
    return element(
        "span", run.mark, class_=f"badge {'useful' if run.mark == 'right' else 'dismissed'}"
    )


def runs_page(
    runs: Sequence[Run], going: Sequence[Going], total: int, filters: Mapping[str, str]
) -> str:
    """All runs, newest first, with search and filters."""
    text, graph, mark = (filters.get(name, "") for name in ("q", "graph", "mark"))

    def choice(name: str, label: str, options: Sequence[tuple[str, str]], chosen: str) -> Html:
        return element(
            "div",
            element("label", label, for_=name),
            element(
                "select",
                *(
                    element("option", shown, value=value, selected=value == chosen)
                    for value, shown in options
                ),
                id=name,
                name=name,
            ),
            class_="knob",
        )

    search = element(
        "form",
        element(
            "div",
            element("label", "Search", for_="q"),
            element("input", type="search", id="q", name="q", value=text),
            class_="knob grow",
        ),
        choice("graph", "Graph", [("", "all"), *GRAPHS.items()], graph),
        choice(
            "mark",
            "Mark",
            [("", "all"), ("right", "right"), ("wrong", "wrong"), ("none", "without")],
            mark,
        ),
        element("button", "Find"),
        action="/runs",
        method="get",
        class_="filters",
        role="search",
    )
    is_filtered = bool(text or graph or mark)
    shown: object = run_list(runs, () if is_filtered else going)
    if not runs and not (going and not is_filtered):
        words = "No run is like that." if is_filtered else "No runs yet."
        shown = element("p", words, " ", element("a", "Ask a question", href="/"), class_="empty")
    told = f"{len(runs)} of " if len(runs) < total else ""
    about = element(
        "p",
        f"{told}{counted(total, 'run')}. The {SHOWN} newest are listed; {MOST_RUNS:,} are kept, "
        "and all that are marked. ",
        element("a", "Marked ones for eval", href="/export.jsonl"),
        " \u00b7 ",
        element("a", "JSON", href=f"/runs.json?{urlencode({**filters})}".rstrip("?")),
        class_="help",
    )
    compare = _compare_bar(runs)
    return page("Runs", head(None, "Runs"), search, shown, about, compare, here="runs")


def _compare_bar(runs: Sequence[Run]) -> Html | None:
    if len(runs) < 2:
        return None
    return element(
        "section", element("h2", "Compare two"), compare_form(runs, runs[1].id, runs[0].id)
    )


def compare_form(runs: Sequence[Run], a: str, b: str) -> Html:
    """A choice of two runs."""

    def choice(name: str, label: str, chosen: str) -> Html:
        options = (
            element(
                "option",
                f"{excerpt(run.question, 60)} ({graph_name(run.graph)})",
                value=run.id,
                selected=run.id == chosen,
            )
            for run in runs
        )
        return element(
            "div",
            element("label", label, for_=f"compare-{name}"),
            element("select", *options, id=f"compare-{name}", name=name),
            class_="knob grow",
        )

    return element(
        "form",
        choice("a", "One", a),
        choice("b", "Other", b),
        element("button", "Compare"),
        action="/compare",
        method="get",
        class_="filters",
    )
