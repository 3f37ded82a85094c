"""The page of a run that goes on: its steps, its answer so far, the search that waits."""

from selfcorrect_rag.render.markup import Html, element, excerpt, joined
from selfcorrect_rag.ui.going import Going
from selfcorrect_rag.ui.layout import graph_name, head, notice, page


def going_page(run: Going) -> str:
    """A run that goes on: its steps, its answer so far, what it waits for."""
    reload = element("noscript", element("meta", http_equiv="refresh", content="2"))
    stop = element(
        "form",
        element("button", "Stop", class_="stop"),
        action=f"/runs/{run.id}/stop",
        method="post",
        data_quiet=True,
    )
    body = joined(
        [
            head(f"{graph_name(run.graph)} \u00b7 {run.place}", excerpt(run.question, 300)),
            element(
                "div",
                element("p", "", class_="answer", id="answer-so-far", dir="auto"),
                element("div", waiting(run), id="waiting"),
                element("div", notice(""), id="fault"),
                element(
                    "div",
                    element("h2", "Steps"),
                    stop,
                    class_="row spread",
                ),
                element("ol", id="steps", class_="route live-route"),
                element("p", "", id="progress", role="status", class_="unseen-label"),
                element(
                    "noscript",
                    element("p", "This page reloads until the run is over.", class_="help"),
                ),
                id="live",
                data_run=run.id,
            ),
        ]
    )
    return page(run.question, body, here="runs", head=None if run.pause else reload)


def waiting(run: Going) -> Html | None:
    """The form that approves a search, changes it or refuses it; None where none waits."""
    if run.pause is None:
        return None
    return element(
        "form",
        element("p", element("strong", f"Search {excerpt(run.pause['source'], 80)}?")),
        element("label", "Query", for_="reply-query"),
        element(
            "input",
            type="text",
            id="reply-query",
            name="query",
            value=run.pause["query"],
            maxlength=400,
            required=True,
            dir="auto",
        ),
        element(
            "div",
            element("button", "Search", name="approve", value="yes", class_="primary"),
            element("button", "Do not search", name="approve", value="no", formnovalidate=True),
            class_="row",
        ),
        action=f"/runs/{run.id}/reply",
        method="post",
        class_="card approve",
        data_quiet=True,
    )
