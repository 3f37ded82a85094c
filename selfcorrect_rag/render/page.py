"""A run as one HTML page, in a file or in a notebook: the answer first, then what led to it."""

import base64
import hashlib
import html
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from selfcorrect_rag.render import answer, candidates, evidence
from selfcorrect_rag.render.made import made
from selfcorrect_rag.render.markup import (
    LINES,
    Html,
    element,
    excerpt,
    joined,
    labelled,
    prose,
    title,
)
from selfcorrect_rag.render.reading import GRAPHS, Result, graph_of, rows
from selfcorrect_rag.render.reasons import left_out
from selfcorrect_rag.render.route import in_words, route_of


def render_run(result: Result, *, title: str | None = None) -> str:
    """A run as one self-contained HTML page, with no script and no request to anywhere.

    Args:
        result: the result of any of the graphs, or the JSON of ``ask --json``, which adds
            ``seconds``. Any key may be missing, as in a run that was interrupted.
        title: put above the question; the graph's name where None.

    Returns:
        UTF-8 text. All text of the run is escaped; characters that reorder or hide text are shown
        by their code points; only http and https addresses become links; texts longer than 20,000
        characters are cut, and say so.
    """
    return _page(result, title, base=None)


@dataclass(frozen=True)
class RunPage:
    """A page that a notebook shows in an iframe, so that styles do not mix."""

    html: str = field(repr=False)
    height: int | None
    """Height of the frame in CSS pixels; None: that of the page."""

    def _repr_html_(self) -> str:
        """The frame, in which no script runs; the notebook measures it, where it may."""
        # Measuring takes one origin; there is still no script inside, and none may run.
        fits, same = ("", "") if self.height else (f' onload="{_FIT}"', "allow-same-origin ")
        height = int(self.height or UNMEASURED)
        return (
            f'<iframe title="A run" srcdoc="{html.escape(self.html)}"{fits} '
            f'sandbox="{same}allow-popups allow-popups-to-escape-sandbox" '
            f'style="width:100%;height:{height}px;border:0;resize:vertical"></iframe>'
        )


UNMEASURED = 640
"""Height of a frame in CSS pixels where a notebook runs nothing, as one that is not trusted."""
_FIT = "this.style.height = this.contentDocument.documentElement.scrollHeight + 'px'"


def show_run(result: Result, *, title: str | None = None, height: int | None = None) -> RunPage:
    """The page of :func:`render_run` for a notebook: make it the last value of a cell.

    ``height`` is the frame's in CSS pixels; None: that of the page.
    """
    # A frame of this kind has its notebook's base address, to which "#passage-1" would lead.
    return RunPage(_page(result, title, base="about:srcdoc"), height)


def _page(result: Result, title: str | None, base: str | None) -> str:
    kicker = title or f"A run of {GRAPHS.get(graph_of(result), 'a graph')}"
    question = str(result.get("question") or "No question")
    heading = excerpt(question, 300)
    lead = prose(question) if len(question) > len(heading) + 10 else None
    return whole_page(kicker, heading, sections_of(result), answer.footer(result), lead, base)


Sections = dict[str, tuple[str, Html]]
"""Id to heading and content."""


def whole_page(
    kicker: str,
    heading: str,
    sections: Sections,
    footer: Html | None,
    lead: Html | None = None,
    base: str | None = None,
) -> str:
    """A self-contained page: sections under a heading, with links to each; no script.

    Args:
        kicker: the line above the heading.
        heading: one line.
        sections: in order.
        footer: the last line.
        lead: what stands below the heading.
        base: the page's own address, where its frame has another.
    """
    style = _style()
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("base", href=base) if base else None,
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        title(f"{excerpt(heading, 80)} \u2013 {kicker}"),
        element("style", Html(style)),
    )
    body = element(
        "body",
        element(
            "header",
            element("p", kicker, class_="kicker"),
            element("h1", heading, dir="auto"),
            lead,
        ),
        contents(sections),
        element("main", *(section(name, *shown) for name, shown in sections.items())),
        element("footer", footer),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


@cache
def _style() -> str:
    return files("selfcorrect_rag.render").joinpath("page.css").read_text(encoding="utf-8")


def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; form-action 'none'"


def sections_of(result: Result, ran: Result | None = None) -> Sections:
    """The sections of a run's page that have something to show: id to heading and content.

    Args:
        result: what is shown.
        ran: the run that took place, where ``result`` is what it would have been otherwise.
    """
    ran = ran or result
    pages = "Documents" if graph_of(result) == "instruct_rag" else "Passages"
    every = {
        "answer": ("Answer", answer.answer(result)),
        "notes": ("Notes", answer.notes(result)),
        "rationale": ("Rationale", answer.rationale(result)),
        "route": ("Route", _route(ran)),
        "decision": ("Retrieval decision", candidates.retrieval(result)),
        "action": ("Action", evidence.correction(result)),
        "candidates": ("Candidates", candidates.candidates(result)),
        "knowledge": ("Knowledge", evidence.knowledge(result)),
        "passages": (pages, evidence.passages(result)),
        "web": ("Web search", evidence.web(result)),
        "demonstrations": ("Demonstrations", answer.demonstrations(result)),
        "made": ("How it was made", made(ran)),
    }
    return {name: (heading, shown) for name, (heading, shown) in every.items() if shown}


def section(name: str, heading: str, shown: Html) -> Html:
    """A section with its heading."""
    return element(
        "section",
        element("h2", heading, id=f"{name}-heading"),
        shown,
        id=name,
        aria_labelledby=f"{name}-heading",
    )


def contents(sections: Sections) -> Html:
    """Links to the sections."""
    links = [
        element("li", element("a", heading, href=f"#{name}"))
        for name, (heading, _) in sections.items()
    ]
    return element("nav", element("ul", *links), aria_label="Sections")


def _route(result: Result) -> Html | None:
    steps = route_of(result)
    if not steps:
        return None
    items = []
    for i, step in enumerate(steps):
        beside = [s.node for j, s in enumerate(steps) if j != i and s.after == step.after]
        words = [step.outcome] if step.outcome else []
        words += [f"beside \u201c{in_words(node)}\u201d" for node in beside]
        aside = labelled(", ".join(words), "aside", "span")
        items.append(element("li", element("span", in_words(step.node), title=step.node), aside))
    paused = element("li", element("strong", "paused")) if rows(result, "__interrupt__") else None
    omitted = [element("li", excerpt(reason, LINES)) for reason in left_out(result)]
    return joined(
        [
            element("ol", *items, paused, class_="route"),
            element("ul", *omitted, class_="notes", aria_label="Left out") if omitted else None,
        ]
    )
