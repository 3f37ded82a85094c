"""The page to ask: the form of every graph, and the latest runs."""

from collections.abc import Sequence
from urllib.parse import urlencode

from selfcorrect_rag.render.markup import Html, element, joined
from selfcorrect_rag.settings import GRAPHS, Settings
from selfcorrect_rag.ui import forms
from selfcorrect_rag.ui.going import Going
from selfcorrect_rag.ui.layout import graph_name, head, hidden, notice, page
from selfcorrect_rag.ui.runs_page import run_list
from selfcorrect_rag.ui.store import Run

DOES = {
    "self_rag": "Decides whether to retrieve, writes a candidate for each passage, keeps what its "
    "passage supports.",
    "crag": "Grades the documents, keeps their best strips, searches where they do not do.",
    "self_crag": "Corrects the retrieval as CRAG does, then writes as Self-RAG does.",
    "instruct_rag": "Writes a rationale over the documents, and reads the answer off it.",
}
"""What each graph does."""
EXAMPLES = (
    ("self_rag", "Who discovered penicillin?", "found, cited, and why that passage"),
    ("self_rag", "Thank you very much!", "needs no evidence, and gets none"),
    ("self_crag", "Where was Harper Lee born?", "the index does not say; the second corpus does"),
    ("crag", "Who designed the Williamsburg Bridge?", "graded incorrect, so it searches"),
    ("instruct_rag", "Who painted Guernica?", "a rationale over the documents"),
)
"""Graphs, questions on the demo corpus, and what each shows."""
RECENT = 6
"""Runs listed beside the form."""


def ask_page(
    places: Sequence[str],
    answers: str,
    runs: Sequence[Run],
    going: Sequence[Going],
    *,
    question: str = "",
    graph: str = "self_rag",
    place: str = "",
    settings: Settings | None = None,
    error: str = "",
    bad: str = "",
    is_demo: bool = False,
) -> str:
    """The form, filled in as a link or a refused form says, and the latest runs."""
    form = element(
        "form",
        element("label", "Question", for_="question", class_="unseen-label"),
        element(
            "textarea",
            question,
            id="question",
            name="question",
            rows=2,
            maxlength=forms.LONGEST,
            required=True,
            placeholder="What do you want to know?",
            autofocus=not question,
            dir="auto",
            aria_invalid="true" if error and not bad else None,
        ),
        notice(error, "notice error"),
        _graphs(graph),
        _places(places, place),
        element(
            "div", element("button", "Ask", class_="primary"), _asked_of(answers), class_="row"
        ),
        element("h2", "Knobs"),
        *(
            element(
                "div",
                forms.fields(
                    name,
                    settings if settings and name == graph else GRAPHS[name](),
                    f"{name}.",
                    bad if name == graph else "",
                ),
                class_="of-graph",
                data_graph=name,
            )
            for name in DOES
        ),
        action="/ask",
        method="post",
        id="ask",
    )
    latest = element(
        "aside",
        _examples() if is_demo and not runs else None,
        joined(
            [
                element("h2", "Latest runs"),
                run_list(runs[:RECENT], going) if runs or going else _none_yet(is_demo),
                element("p", element("a", "All runs", href="/runs"), class_="more")
                if len(runs) > RECENT
                else None,
            ]
        ),
        aria_label="Latest runs",
    )
    body = element("div", element("div", head(None, "Ask"), form), latest, class_="two")
    return page("Ask", body, here="ask")


def _graphs(graph: str) -> Html:
    cards = (
        element(
            "label",
            element(
                "input",
                type="radio",
                name="graph",
                value=name,
                id=f"graph-{name}",
                checked=name == graph,
            ),
            element("strong", graph_name(name)),
            element("span", does, class_="help"),
            class_="choice",
        )
        for name, does in DOES.items()
    )
    return element("fieldset", element("legend", "Graph"), *cards, class_="choices")


def _places(places: Sequence[str], place: str) -> Html:
    if len(places) == 1:
        return hidden(index=places[0])
    options = (element("option", name, value=name, selected=name == place) for name in places)
    return element(
        "div",
        element("label", "Index", for_="index"),
        element("select", *options, id="index", name="index"),
        class_="knob index",
    )


def _asked_of(answers: str) -> Html:
    return element("span", f"by {answers}", class_="aside")


def _examples() -> Html:
    items = (
        element(
            "li",
            element("a", question, href=f"/?{urlencode({'graph': graph, 'question': question})}"),
            element("span", f"{graph_name(graph)}: {why}", class_="help"),
        )
        for graph, question, why in EXAMPLES
    )
    return joined([element("h2", "Try"), element("ul", *items, class_="examples")])


def _none_yet(is_demo: bool) -> Html:
    more = "" if is_demo else " Ask something that your documents say, and something they do not."
    return element("p", f"No runs yet.{more}", class_="help")
