"""Faults of a web search: of one of your own, and of Tavily behind its own client."""

import time
from collections.abc import Callable
from typing import Any

from tests.faults.cases import Seen, fault
from tests.faults.graphs import Parts, hangs, raises, seen
from tests.search.test_tavily import Tavily

SEARCHING = ("crag", "self_crag")


def broken(graph: str, form: str, does: Any, **context: Any) -> Seen:
    return seen(graph, form, lambda parts: parts.web.breaks(does), context)


@fault("Web search", "raises", SEARCHING)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, raises(ConnectionError("no route")))


@fault("Web search", "hangs", SEARCHING)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, hangs, step_timeout=0.2)


@fault("Web search", "finds nothing", SEARCHING)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda query: [])


@fault("Web search", "returns None", SEARCHING)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda query: None)


@fault("Web search", "returns results that are no Documents", SEARCHING)
def _(graph: str, form: str) -> Seen:
    def pages(query: str) -> Any:
        if form == "sync":
            time.sleep(0.2)  # the step beside it has ended by then, and its result is kept
        return [{"url": "https://a.org", "content": "A page."}]

    return broken(graph, form, pages)


def _tavily(graph: str, form: str, spoilt: Callable[[Tavily], Any], **options: Any) -> Seen:
    server = Tavily()
    spoilt(server)

    def by_tavily(parts: Parts) -> None:
        parts.pages = server.web(retries=0, **options)

    try:
        return seen(graph, form, by_tavily)
    finally:
        server.released.set()
        server.server.shutdown()
        server.server.server_close()


def _answers(status: int) -> Callable[[Tavily], Any]:
    return lambda server: vars(server).update(status=status, failures=99)


@fault("Web search", "Tavily refuses the key (401)", SEARCHING)
def _(graph: str, form: str) -> Seen:
    return _tavily(graph, form, _answers(401))


@fault("Web search", "Tavily is asked too often (429)", SEARCHING)
def _(graph: str, form: str) -> Seen:
    return _tavily(graph, form, _answers(429))


@fault("Web search", "Tavily is broken (500)", SEARCHING)
def _(graph: str, form: str) -> Seen:
    return _tavily(graph, form, _answers(500))


@fault("Web search", "Tavily answers with a page in place of JSON", SEARCHING)
def _(graph: str, form: str) -> Seen:
    return _tavily(graph, form, lambda server: vars(server).update(body="<html>Sorry</html>"))


@fault("Web search", "Tavily breaks the connection off", SEARCHING)
def _(graph: str, form: str) -> Seen:
    return _tavily(graph, form, _answers(0))


@fault("Web search", "Tavily hangs", SEARCHING)
def _(graph: str, form: str) -> Seen:
    return _tavily(graph, form, lambda server: vars(server).update(hang=True), timeout=0.2)
