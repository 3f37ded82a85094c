"""The page of a run that is over: its answer and why, how to weigh it, what to do with it."""

from collections.abc import Sequence
from urllib.parse import urlencode

from selfcorrect_rag.render.answer import footer
from selfcorrect_rag.render.markup import Html, element, excerpt, folded, joined, prose
from selfcorrect_rag.render.page import Sections, contents, section, sections_of
from selfcorrect_rag.settings import GRAPHS
from selfcorrect_rag.ui import forms, playing
from selfcorrect_rag.ui.layout import graph_name, head, hidden, notice, page, when
from selfcorrect_rag.ui.playing import Play
from selfcorrect_rag.ui.ranking import ranking
from selfcorrect_rag.ui.store import Run


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
    sections = sections_of(result, before)
    if shown and shown.replay and shown.replay.stale:
        heading, answer = sections["answer"]
        stale = element("p", "still the run\u2019s answer", class_="badge")
        sections["answer"] = heading, joined([answer, stale])
    first: Sections = {name: sections.pop(name) for name in ("answer", "notes") if name in sections}
    why = ranking(run.result, shown.replay if shown else None)
    parts = [section(name, *of) for name, of in first.items()]
    parts += [section("why", "Why this answer", why)] if why else []
    parts += [section(name, *of) for name, of in sections.items()]
    every = {**first, **sections}
    if why:
        every = {**first, "why": ("Why", why), **sections}
    if shown and shown.knobs:
        every["weigh"] = ("Weigh differently", Html())
    verdict = playing.verdict(shown) if shown else None
    return joined([verdict, contents(every), *parts, element("footer", footer(before or result))])


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


def edit_link(run: Run, shown: Play | None) -> str:
    """The address of the form with the question, the graph and these settings."""
    about = {"graph": run.graph, "question": run.question}
    if shown is None:
        return f"/?{urlencode(about)}"
    return f"/?{forms.query(shown.tried, **about, index=run.place)}"


def _again(run: Run, shown: Play | None) -> Html:
    graphs = (
        element(
            "form",
            hidden(question=run.question, graph=name, index=run.place, beside=run.id),
            element("button", graph_name(name)),
            action="/ask",
            method="post",
        )
        for name in GRAPHS
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
            element(
                "button", "Run again with these" if shown.knobs else "Run again", class_="primary"
            ),
            action="/ask",
            method="post",
            id="rerun",
        )
    return element(
        "section",
        element("h2", "Ask again"),
        element("div", rerun, id="again") if rerun else None,
        element(
            "p",
            element("a", "Change the question or the knobs", href=edit_link(run, shown), id="edit"),
        ),
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
