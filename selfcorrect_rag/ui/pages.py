"""The pages: ask, watch a run, look at a run, all runs, what went wrong."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from selfcorrect_rag.render.answer import footer
from selfcorrect_rag.render.markup import Html, element, excerpt, folded, joined, prose
from selfcorrect_rag.render.page import contents, section, sections_of
from selfcorrect_rag.settings import GRAPHS, Settings
from selfcorrect_rag.ui import forms, playing
from selfcorrect_rag.ui.going import Going
from selfcorrect_rag.ui.layout import GRAPHS as NAMED
from selfcorrect_rag.ui.layout import graph_name, head, hidden, notice, page, when
from selfcorrect_rag.ui.playing import Play
from selfcorrect_rag.ui.ranking import ranking
from selfcorrect_rag.ui.store import MOST_RUNS, SHOWN, Run

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
LONGEST_QUESTION = 8_000
"""Most characters of a question."""


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
            maxlength=LONGEST_QUESTION,
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
                    f"{bad}" if name == graph else "",
                ),
                class_="of-graph",
                data_graph=name,
            )
            for name in NAMED
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
                _list(runs[:RECENT], going) if runs or going else _none_yet(is_demo),
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
            element("strong", named),
            element("span", does, class_="help"),
            class_="choice",
        )
        for name, (named, does) in NAMED.items()
    )
    return element("fieldset", element("legend", "Graph"), *cards, class_="choices")


def _places(places: Sequence[str], place: str) -> Html:
    if len(places) == 1:
        return joined([hidden(index=places[0])])
    options = (element("option", name, value=name, selected=name == place) for name in places)
    return element(
        "div",
        element("label", "Index", for_="index"),
        element("select", *options, id="index", name="index"),
        class_="knob index",
    )


def _asked_of(answers: str) -> Html:
    return element("span", f"{answers} answers", class_="aside")


def _examples() -> Html:
    items = (
        element(
            "li",
            element("a", question, href=f"/?{urlencode({'graph': graph, 'question': question})}"),
            element("span", f"{NAMED[graph][0]}: {why}", class_="help"),
        )
        for graph, question, why in EXAMPLES
    )
    return joined([element("h2", "Try"), element("ul", *items, class_="examples")])


def _none_yet(is_demo: bool) -> Html:
    more = "" if is_demo else " Ask something that your documents say, and something they do not."
    return element("p", f"No runs yet.{more}", class_="help")


def _list(runs: Sequence[Run], going: Sequence[Going] = ()) -> Html:
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
        choice("graph", "Graph", [("", "all"), *((k, n) for k, (n, _) in NAMED.items())], graph),
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
    shown: object = _list(runs, () if is_filtered else going)
    if not runs and not (going and not is_filtered):
        words = "No run is like that." if is_filtered else "No runs yet."
        shown = element("p", words, " ", element("a", "Ask a question", href="/"), class_="empty")
    told = f"{len(runs)} of {total}" if is_filtered or len(runs) < total else f"{total}"
    about = element(
        "p",
        f"{told} runs. The {SHOWN} newest are listed; {MOST_RUNS:,} are kept, and all that are "
        "marked. ",
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
            dir="auto",
        ),
        element(
            "div",
            element("button", "Search", name="approve", value="yes", class_="primary"),
            element("button", "Do not search", name="approve", value="no"),
            class_="row",
        ),
        action=f"/runs/{run.id}/reply",
        method="post",
        class_="card approve",
        data_quiet=True,
    )


def run_page(run: Run, shown: Play | None, others: Sequence[Run], error: str = "") -> str:
    """A run that is over: its answer and why, beside it the knobs, the judgement, what to do."""
    kicker: list[object] = [
        graph_name(run.graph),
        " \u00b7 ",
        run.place,
        " \u00b7 ",
        f"{run.seconds:.2f} s",
        " \u00b7 ",
        when(run.asked),
    ]
    if run.state != "done":
        kicker += [" \u00b7 ", element("span", run.state, class_=f"state {run.state}")]
    long = prose(run.question) if len(run.question) > 310 else None
    main = element(
        "div",
        notice(run.error, "notice error"),
        notice(error, "notice error"),
        element("div", fragment(run, shown), id="shown", aria_live="off"),
        element("p", "", id="told", role="status", class_="unseen-label"),
        class_="run",
    )
    side = element(
        "aside",
        _weigh(shown),
        _judge(run),
        _again(run, shown),
        _files(run, others),
        class_="side",
        aria_label="What to do with it",
    )
    title = head(
        joined([element("span", part) for part in kicker]), excerpt(run.question, 300), long
    )
    body = element("div", element("div", title, main), side, class_="two of-run")
    return page(run.question, body, here="runs", data_run=run.id)


def fragment(run: Run, shown: Play | None) -> Html:
    """What other settings change: the verdict, the ranking, and the sections of the run."""
    result = shown.result if shown else run.result
    before = run.result if shown and shown.replay else None
    sections = sections_of(result)
    first = {name: sections.pop(name) for name in ("answer", "notes") if name in sections}
    why = ranking(result, before)
    parts = [section(name, *of) for name, of in first.items()]
    parts += [section("why", "Why this answer", why)] if why else []
    parts += [section(name, *of) for name, of in sections.items()]
    every = {**first, **({"why": ("Why", why)} if why else {}), **sections}
    verdict = playing.verdict(shown) if shown else None
    return joined([verdict, contents(every), *parts, element("footer", footer(result))])


def _weigh(shown: Play | None) -> Html | None:
    if shown is None or shown.run.state != "done":
        return None
    if not shown.knobs:
        words = element("p", playing.explained(shown.settings), class_="help")
    else:
        words = element("p", "No model is asked: what changes is seen at once.", class_="help")
    return element(
        "section",
        element("h2", "Weigh differently", id="weigh"),
        words,
        playing.form(shown) if shown.knobs else None,
    )


def _again(run: Run, shown: Play | None) -> Html:
    if shown is None:
        other: dict[str, str] = {"question": run.question, "graph": run.graph}
        link = f"/?{urlencode(other)}"
    else:
        link = (
            f"/?{forms.query(shown.tried, graph=run.graph, question=run.question, index=run.place)}"
        )
    graphs = (
        element(
            "form",
            hidden(question=run.question, graph=name, index=run.place, beside=run.id),
            element("button", named),
            action="/ask",
            method="post",
        )
        for name, (named, _) in NAMED.items()
        if name != run.graph
    )
    rerun = None
    if shown is not None:
        fields = forms.texts(shown.tried)
        rerun = element(
            "form",
            hidden(question=run.question, graph=run.graph, index=run.place, beside=run.id),
            *(
                element("input", type="hidden", name=f"{run.graph}.{name}", value=text)
                for name, texts in fields.items()
                for text in texts
            ),
            element("button", "Run again with these", class_="primary"),
            action="/ask",
            method="post",
            id="rerun",
        )
    return element(
        "section",
        element("h2", "Ask again"),
        element("div", rerun, id="again") if rerun else None,
        element("p", element("a", "Change the question or the knobs", href=link, id="edit")),
        element("p", "The same question to another graph, side by side:", class_="help"),
        element("div", *graphs, class_="row"),
    )


def _judge(run: Run) -> Html:
    marks = (("right", "Right"), ("wrong", "Wrong"), ("", "No mark"))
    choices = (
        element(
            "label",
            element("input", type="radio", name="mark", value=value, checked=run.mark == value),
            element("span", label),
            class_=f"mark {value or 'none'}",
        )
        for value, label in marks
    )
    return element(
        "section",
        element("h2", "Is it right?"),
        element(
            "form",
            element(
                "fieldset",
                element("legend", "Mark", class_="unseen-label"),
                *choices,
                class_="marks",
            ),
            folded(
                "Right answers and a note",
                element("label", "Right answers, one a line", for_="answers"),
                element(
                    "textarea",
                    "\n".join(run.answers),
                    id="answers",
                    name="answers",
                    rows=2,
                    maxlength=4_000,
                    dir="auto",
                ),
                element("label", "Note", for_="note"),
                element(
                    "textarea",
                    run.note,
                    id="note",
                    name="note",
                    rows=2,
                    maxlength=4_000,
                    dir="auto",
                ),
                is_open=bool(run.answers or run.note),
            ),
            element(
                "div",
                element("button", "Save"),
                element("span", "", id="marked", role="status"),
                class_="row",
            ),
            action=f"/runs/{run.id}/mark",
            method="post",
            id="mark",
            data_quiet=True,
        ),
    )


def _files(run: Run, others: Sequence[Run]) -> Html:
    rest = [other for other in others if other.id != run.id]
    same = [other for other in rest if other.question == run.question]
    rest = [*same, *(other for other in rest if other.question != run.question)][:20]
    compare = element(
        "form",
        hidden(a=run.id),
        element("label", "Compare with", for_="b"),
        element(
            "select",
            *(
                element(
                    "option",
                    f"{excerpt(other.question, 50)} ({graph_name(other.graph)})",
                    value=other.id,
                )
                for other in rest
            ),
            id="b",
            name="b",
        ),
        element("button", "Compare"),
        action="/compare",
        method="get",
        class_="stacked",
    )
    delete = folded(
        "Delete this run",
        element(
            "form",
            element("p", "It is gone for good.", class_="help"),
            element("button", "Delete", class_="stop"),
            action=f"/runs/{run.id}/delete",
            method="post",
        ),
    )
    return element(
        "section",
        element("h2", "Keep and compare"),
        compare if rest else None,
        element(
            "p",
            element("a", "Page", href=f"/runs/{run.id}.html", download=f"run-{run.id}.html"),
            " \u00b7 ",
            element("a", "JSON", href=f"/runs/{run.id}.json", download=f"run-{run.id}.json"),
            element("span", " for ", element("code", "ask --again"), class_="aside"),
        ),
        delete,
    )


def fault_page(status: int, words: str) -> str:
    """What went wrong, on one line, and the way back."""
    heading = {404: "Not here", 403: "Not allowed", 405: "Not that way", 413: "Too much"}.get(
        status, "That did not work"
    )
    body = joined([head(str(status), heading), element("p", excerpt(words, 500))])
    return page(
        heading, body, element("p", element("a", "Ask a question", href="/"), class_="more")
    )
