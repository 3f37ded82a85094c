"""Two runs side by side: what they answered, and in what they differ."""

from collections.abc import Callable, Mapping

from selfcorrect_rag.render.answer import answer
from selfcorrect_rag.render.markup import Html, element, excerpt
from selfcorrect_rag.render.reading import Result, action, cost, decision, records
from selfcorrect_rag.render.reasons import written
from selfcorrect_rag.render.route import in_words, route_of
from selfcorrect_rag.settings import GRAPHS
from selfcorrect_rag.state.sources import title_line
from selfcorrect_rag.ui import forms
from selfcorrect_rag.ui.layout import graph_name, head, page, when
from selfcorrect_rag.ui.runs_page import compare_form
from selfcorrect_rag.ui.store import Run

ROWS: Mapping[str, Callable[[Run], str]] = {
    "Graph": lambda run: graph_name(run.graph),
    "Index": lambda run: run.place,
    "Model": lambda run: str((run.result.get("made") or {}).get("model") or ""),
    "Retrieval": lambda run: ": ".join(decision(run.result) or ()),
    "Action": lambda run: ": ".join(action(run.result) or ()),
    "Path score": lambda run: written(run.result.get("score")),
    "Search": lambda run: str(run.result.get("web_query") or ""),
    "Cost": lambda run: ", ".join(cost(run.result)),
    "Mark": lambda run: run.mark,
}
"""What is compared on a line each."""


def compare_page(a: Run, b: Run, runs: list[Run]) -> str:
    """The two runs, and a choice of others."""
    same = a.question == b.question
    title = head("Compare", excerpt(a.question, 300) if same else "Two runs")
    both = element("div", *(_side(run, same) for run in (a, b)), class_="sides")
    every = [*runs, *(run for run in (a, b) if run.id not in {r.id for r in runs})]
    return page(
        "Compare",
        title,
        both,
        _differences(a, b),
        element("section", element("h2", "Compare others"), compare_form(every, a.id, b.id)),
        here="runs",
    )


def differences(a: Run, b: Run) -> dict[str, list[str]]:
    """What two runs differ in: a line's name to what each has."""
    rows = {name: [of(a), of(b)] for name, of in ROWS.items()}
    rows |= {forms.in_words(name): both for name, both in _settings(a, b).items()}
    rows["Route"] = [_route(a.result), _route(b.result)]
    rows["Cites"] = [_cited(a.result), _cited(b.result)]
    return {name: both for name, both in rows.items() if both[0] != both[1]}


def _side(run: Run, same: bool) -> Html:
    question = None if same else element("p", excerpt(run.question, 200), dir="auto")
    shown = answer(run.result) if not run.error else element("p", run.error, class_="notice error")
    return element(
        "section",
        element(
            "h2",
            element("a", graph_name(run.graph), href=f"/runs/{run.id}"),
            " ",
            element("span", run.place, " \u00b7 ", when(run.asked), class_="aside"),
        ),
        question,
        _without_anchors(shown),
        aria_label=graph_name(run.graph),
    )


def _without_anchors(shown: Html) -> Html:
    """The same, without links to passages, which are not on this page."""
    return Html(shown.replace('href="#', 'data-passage="'))


def _settings(a: Run, b: Run) -> dict[str, list[str]]:
    """The settings that differ, of those that both graphs have."""
    one, other = (dict((run.result.get("made") or {}).get("settings") or {}) for run in (a, b))
    return {
        name: [forms.told(one[name]), forms.told(other[name])]
        for name in one
        if name in other and one[name] != other[name] and _is_same(name, a.graph, b.graph)
    }


def _is_same(name: str, *graphs: str) -> bool:
    """Whether a setting is a choice of the same in both graphs: ``mode`` is none."""
    known = [forms.schema(graph).get(name, {}) for graph in graphs if graph in GRAPHS]
    return len({str(about.get("x_oap_ui_config", {}).get("options")) for about in known}) < 2


def _route(result: Result) -> str:
    return " \u2192 ".join(
        in_words(step.node) + (f" ({step.outcome})" if step.outcome else "")
        for step in route_of(result)
    )


def _cited(result: Result) -> str:
    titles = (title_line(c.get("title")) or "Untitled" for c in records(result, "citations"))
    return ", ".join(dict.fromkeys(titles)) or "nothing"


def _differences(a: Run, b: Run) -> Html:
    differs = differences(a, b)
    if not differs:
        return element("p", "They differ in nothing that is compared.", class_="empty")
    rows = (
        element(
            "tr",
            element("th", name, scope="row"),
            *(element("td", element("bdi", excerpt(text or "\u2013", 600))) for text in both),
        )
        for name, both in differs.items()
    )
    heads = element(
        "tr",
        element("th", element("span", "What", class_="unseen-label"), scope="col"),
        *(element("th", graph_name(run.graph), scope="col") for run in (a, b)),
    )
    table = element("table", element("thead", heads), element("tbody", *rows), class_="differs")
    return element("section", element("h2", "What differs"), table)
