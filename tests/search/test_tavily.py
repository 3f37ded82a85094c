"""Tavily through its own client, against a loopback server that speaks its wire format."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from selfcorrect_rag.errors import WebSearchFailed
from selfcorrect_rag.search import TavilyWebSearch

from .stand_ins import Call

KEY = "tvly-very-secret"


def page(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "url": f"https://example.org/{number}",
        "title": f"Page {number}",
        "content": f"Snippet {number}",
        "score": 0.9 - number / 10,
        "raw_content": None,
        **fields,
    }


class Tavily:
    """The stand-in: answers as a test says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.status, self.results, self.body = 200, [page(1), page(2)], None
        self.failures, self.asked = 0, []
        self.trickle = self.flood = False
        self.released, self.hung_up = threading.Event(), threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append((self.path, body, dict(self.headers)))
                status, text = outer.answer(body)
                if status == 0:  # close the connection without a word
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                try:
                    while outer.trickle and not outer.released.wait(0.05):
                        self.wfile.write(b" ")
                    while outer.flood and not outer.released.is_set():
                        self.wfile.write(b" " * 2**20)
                    self.wfile.write(text.encode())
                except OSError:  # the client has hung up
                    outer.hung_up.set()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, body: dict) -> tuple[int, str]:
        if self.failures:
            self.failures -= 1
            return self.status, json.dumps({"detail": {"error": "it is broken"}})
        if self.body is not None:
            return 200, self.body
        return 200, json.dumps({"query": body["query"], "results": self.results})

    def web(self, **options: Any) -> TavilyWebSearch:
        return TavilyWebSearch(KEY, api_base_url=self.url, **options)


@pytest.fixture
def tavily() -> Iterator[Tavily]:
    server = Tavily()
    yield server
    server.released.set()
    server.server.shutdown()
    server.server.server_close()


def test_results_are_documents_with_their_addresses(tavily: Tavily, call: Call) -> None:
    tavily.results[0]["raw_content"] = "The whole\n\n page."
    first, second = call(tavily.web(), "search", "Emma, author", 5)
    assert (first.page_content, second.page_content) == ("The whole\n\n page.", "Snippet 2")
    assert first.metadata == {"title": "Page 1", "source": "https://example.org/1"}
    path, body, headers = tavily.asked[0]
    assert path == "/search"
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert body["query"] == "Emma, author"
    assert (body["max_results"], body["include_raw_content"]) == (5, "text")


def test_domains_reach_tavily_and_preferred_ones_come_first(tavily: Tavily, call: Call) -> None:
    tavily.results = [
        page(1),
        *(page(i, url=f"https://notwikipedia.org/{i}") for i in range(2, 15)),
        page(15, url="https://en.wikipedia.org/wiki/Emma"),
    ]
    web = tavily.web(
        prefer_domains=["wikipedia.org"], include_domains=["a.org"], exclude_domains=["b.org"]
    )
    sources = [d.metadata["source"] for d in call(web, "search", "Emma", 3)]
    assert sources[0] == "https://en.wikipedia.org/wiki/Emma"
    assert sources[1:] == ["https://example.org/1", "https://notwikipedia.org/2"]
    assert tavily.asked[0][1]["max_results"] == 20  # or a preferred page ranked ninth is not seen
    assert tavily.asked[0][1]["include_domains"] == ["a.org"]
    assert tavily.asked[0][1]["exclude_domains"] == ["b.org"]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "InvalidAPIKeyError: it is broken"),
        (403, "ForbiddenError"),
        (429, "UsageLimitExceededError"),
        (400, "BadRequestError"),
        (422, "422 Unprocessable"),
        (503, "503 Service"),
        (0, "RemoteProtocolError"),
    ],
)
def test_a_failure_is_told_without_the_key(
    tavily: Tavily, call: Call, status: int, said: str
) -> None:
    tavily.status, tavily.failures = status, 1
    with pytest.raises(WebSearchFailed, match=f"Tavily failed .*{said}") as raised:
        call(tavily.web(), "search", "Emma", 5)
    assert KEY not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(call(tavily.web(), "search", "Emma", 5)) == 2


def test_a_server_that_trickles_is_left_in_time(tavily: Tavily, call: Call) -> None:
    tavily.trickle = True
    with pytest.raises(WebSearchFailed, match="no answer within 1 s"):
        call(tavily.web(timeout=1), "search", "Emma", 5)
    assert not tavily.asked or tavily.hung_up.wait(60)  # a busy machine may not even have asked


def test_a_long_answer_is_refused(tavily: Tavily, call: Call) -> None:
    tavily.flood = True
    with pytest.raises(WebSearchFailed, match="longer than 32 MiB"):
        call(tavily.web(timeout=600), "search", "Emma", 5)
    assert tavily.hung_up.wait(60)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("<html>hello</html>", "JSONDecodeError"),
        ("", "JSONDecodeError"),
        ("[1, 2]", "no list of results|AttributeError|TypeError"),
        ('{"results": "none"}', "no list of results"),
    ],
)
def test_answers_that_are_no_answers(tavily: Tavily, call: Call, body: str, said: str) -> None:
    tavily.body = body
    with pytest.raises(WebSearchFailed, match=said):
        call(tavily.web(), "search", "Emma", 5)


def test_strange_results_are_left_out(tavily: Tavily, call: Call) -> None:
    tavily.results = [
        page(1, url="javascript:alert(1)"),
        page(2, url="file:///etc/passwd"),
        page(2, url="http://["),
        page(3, content="", raw_content=None),
        "not a result",
        page(4),
        page(4, content="The same address again"),
        page(5, url=None),
    ]
    (found,) = call(tavily.web(), "search", "Emma", 5)
    assert found.metadata["source"] == "https://example.org/4"
    assert found.page_content == "Snippet 4"


def test_no_more_pages_than_asked_for(tavily: Tavily, call: Call) -> None:
    tavily.results = [page(i) for i in range(30)]
    assert len(call(tavily.web(), "search", "Emma", 3)) == 3


def test_there_is_no_keyless_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)
    for key in (None, "", "  "):
        with pytest.raises(WebSearchFailed, match="TAVILY_API_KEY"):
            TavilyWebSearch(key)
    monkeypatch.setenv("TAVILY_API_KEY", KEY)
    assert KEY not in repr(TavilyWebSearch())
