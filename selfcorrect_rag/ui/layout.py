"""What all pages share: head, navigation, footer, and small pieces."""

import time

from selfcorrect_rag.render import markup
from selfcorrect_rag.render.markup import Html, element, excerpt, joined
from selfcorrect_rag.render.reading import GRAPHS

KEYS = (
    ("/", "to the question"),
    ("Ctrl Enter", "ask"),
    ("g a", "ask a question"),
    ("g r", "all runs"),
    ("j, k", "next, previous run of a list"),
    ("w", "weigh differently"),
    ("Esc", "stop typing"),
    ("?", "these keys"),
)


def page(
    title: str, *body: object, here: str = "", head: Html | None = None, **body_is: object
) -> str:
    """A whole page.

    Args:
        title: of the window.
        body: what stands in ``main``.
        here: the entry of the navigation that this is: ``ask`` or ``runs``.
        head: more of the head.
        body_is: attributes of the body.
    """
    links = (("ask", "/", "Ask"), ("runs", "/runs", "Runs"))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        markup.title(f"{excerpt(title, 80)} \u2013 selfcorrect-rag"),
        element("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        element("link", rel="stylesheet", href="/static/page.css"),
        element("link", rel="stylesheet", href="/static/ui.css"),
        element("script", src="/static/ui.js", defer=True),
        head,
    )
    top = element(
        "header",
        element("a", "Skip to content", href="#main", class_="skip"),
        element("a", "selfcorrect-rag", href="/", class_="brand"),
        element(
            "nav",
            element(
                "ul",
                *(
                    element(
                        "li",
                        element("a", name, href=to, aria_current="page" if key == here else None),
                    )
                    for key, to, name in links
                ),
                element(
                    "li",
                    element(
                        "button",
                        "Keys",
                        type="button",
                        id="show-keys",
                        class_="quiet js",
                        aria_haspopup="dialog",
                    ),
                ),
            ),
            aria_label="Pages",
        ),
        class_="site",
    )
    main = element("main", *body, id="main")
    whole = element("body", top, main, _keys(), **body_is)
    return f"<!DOCTYPE html>\n{element('html', head, whole, lang='en')}\n"


def _keys() -> Html:
    rows = (
        element(
            "tr",
            element("th", *_typed(keys), scope="row"),
            element("td", what),
        )
        for keys, what in KEYS
    )
    return element(
        "dialog",
        element("h2", "Keys", id="keys-heading"),
        element("table", *rows),
        element("form", element("button", "Close"), method="dialog"),
        id="keys",
        aria_labelledby="keys-heading",
    )


def _typed(keys: str) -> list[object]:
    parts: list[object] = []
    for key in keys.split(" "):
        parts += [" ", element("kbd", key.rstrip(",")), "," if key.endswith(",") else ""]
    return parts[1:]


def head(kicker: object, heading: str, *more: object) -> Html:
    """The heading of a page."""
    return element(
        "div",
        element("p", kicker, class_="kicker") if kicker else None,
        element("h1", heading, dir="auto"),
        *more,
        class_="title",
    )


def when(asked: float) -> Html:
    """A time, in the zone of this machine."""
    local = time.localtime(asked)
    today = time.strftime("%Y-%m-%d", local) == time.strftime("%Y-%m-%d")
    shown = time.strftime("%H:%M" if today else "%d %b %Y, %H:%M", local)
    return element("time", shown, datetime=time.strftime("%Y-%m-%dT%H:%M:%S%z", local))


def graph_name(graph: str) -> str:
    """A graph's name, for people."""
    return GRAPHS.get(graph, graph)


def notice(words: object, kind: str = "notice") -> Html | None:
    """A message that screen readers tell at once; None where there is none."""
    return element("p", words, class_=kind, role="alert") if words else None


def hidden(**fields: str) -> Html:
    """Hidden fields of a form."""
    return joined(element("input", type="hidden", name=k, value=v) for k, v in fields.items())


def fault_page(status: int, words: str) -> str:
    """What went wrong, on one line, and the way back."""
    heading = {404: "Not here", 403: "Not allowed", 405: "Not that way", 413: "Too much"}.get(
        status, "That did not work"
    )
    body = joined([head(str(status), heading), element("p", excerpt(words, 500))])
    return page(
        heading, body, element("p", element("a", "Ask a question", href="/"), class_="more")
    )
