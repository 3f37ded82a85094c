"""SECURITY.md's promises: secrets are masked, no address in a text is opened, tests exist."""

import asyncio
import json
import re
import socket
import sqlite3
import traceback
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic import SecretStr

from selfcorrect_rag.errors import RetrievalFailed, SelfCorrectError, WebSearchFailed, redact
from selfcorrect_rag.models import ChatEvaluator, PromptedReflectionLLM
from selfcorrect_rag.ui.page import render_run
from tests.agents.scripted import GRAPHS
from tests.crag_runs import PagesSearch
from tests.four_graphs import ALL, create
from tests.providers import Provider
from tests.scripted import document
from tests.snippets import ROOT

IN_THE_ENVIRONMENT = "plain-looking-value-of-a-variable"
PROVIDER = "sk-planted-ABCDEFGHIJKLMNOP"
DATABASE = "planted-database-password"
TOKEN = "tvly-dev-planted0123456789"
SAID = (
    f"401 for Authorization: Bearer {PROVIDER}; postgresql://rag:{DATABASE}@db/x; "
    f"{{'api_key': '{TOKEN}'}} {IN_THE_ENVIRONMENT}"
)
"""A careless library's error."""


class Keyed(Provider):
    """A chat model that holds a key as LangChain's own do."""

    api_key: SecretStr = SecretStr(PROVIDER)


class Tracer(BaseCallbackHandler):
    """Writes down all that callbacks are told, as a tracer sends it."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            return lambda *given, **named: self.told.append(f"{name} {given} {named}")
        return super().__getattribute__(name)


def broken(*_: Any) -> Any:
    raise ConnectionError(SAID)


def refuses(*_: Any) -> Any:
    raise RetrievalFailed(f"{SAID}\n\x1b[2J{SAID * 500}")


def judge(prompt: str) -> str:
    return "no" if "exact information" in prompt else "Austen [1]."


def graphs(fails: str, **options: Any) -> list[Any]:
    model = Keyed(answer=broken if fails == "model" else judge)
    works: Any = lambda query: [document("Emma")]  # noqa: E731
    retriever = {"retriever": broken, "retriever, by our own error": refuses}.get(fails, works)
    graded = Keyed(answer=broken) if fails == "evaluator" else Keyed(answer=judge)
    failure = WebSearchFailed(f"{SAID}\n\x1b[2J{SAID * 500}", "try\nagain")
    web = PagesSearch(failure if fails == "web" else None)
    parts = (PromptedReflectionLLM(model), model, retriever, ChatEvaluator(graded), web)
    options["rewriter"] = RunnableLambda(broken) if fails == "rewriter" else None
    return [create(graph, *parts, **options) for graph in ALL]


PARTS = ("model", "retriever", "retriever, by our own error", "evaluator", "rewriter", "web")


@pytest.mark.parametrize("fails", ["nothing", *PARTS])
@pytest.mark.parametrize("form", ["sync", "async"])
def test_no_secret_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any, fails: str, form: str
) -> None:
    monkeypatch.setenv("SOME_DATABASE_PASSWORD", IN_THE_ENVIRONMENT)
    tracer, left = Tracer(), list[str]()
    saver = SqliteSaver(sqlite3.connect(tmp_path / "threads.sqlite", check_same_thread=False))
    options: dict[str, Any] = {"checkpointer": saver} if form == "sync" else {}
    asked: Any = {"question": "Who wrote Emma?"}
    for number, graph in enumerate(graphs(fails, **options)):
        config: Any = {"configurable": {"thread_id": str(number)}, "callbacks": [tracer]}
        try:
            if form == "sync":
                modes = ["values", "custom", "updates"]
                events = list(graph.stream(asked, config, stream_mode=modes))
            else:
                events = [("values", asyncio.run(graph.ainvoke(asked, config)))]
            result = [part for mode, part in events if mode == "values"][-1]
            left += [render_run(result), json.dumps(result, default=str), repr(events)]
        except SelfCorrectError as error:
            left += [str(error) + repr(error), *traceback.format_exception_only(error)]
        left += [repr(graph), repr(vars(graph).get("nodes"))]
    left += capfd.readouterr()
    left += [line for line in tracer.told if not line.startswith(("on_chain_error", "on_llm_err"))]
    left += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir()]
    secrets = IN_THE_ENVIRONMENT, TOKEN, PROVIDER, DATABASE
    assert [text[:300] for text in left if any(secret in text for secret in secrets)] == []
    assert fails == "nothing" or any(redact(SAID)[:20] in text for text in left)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Incorrect key: sk-proj-abcdefghijkl", "Incorrect key: sk-***"),
        ("https://x.org/?access_token=abcdef&k=5", "https://x.org/?access_token=***&k=5"),
        ("password: hunter22", "password: ***"),
        ("https://x.org/?token=abcdefghijklmnop&k=5", "https://x.org/?token=***&k=5"),
        ("'authorization': 'Basic dXNlcjpw'", "'authorization': 'Basic ***'"),
        ("secret_key=abcdef, private-key: abcdef", "secret_key=***, private-key: ***"),
        ("'redis://:pa/ss@h', 'me@example.org'", "'redis://***@h', 'me@example.org'"),
        ("AKIAIOSFODNN7EXAMPLE is no key", "AKIA*** is no key"),
        ("'set-cookie': 'sid=abcdef; Path=/'", "'set-cookie': '***'"),
        ("got eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "got eyJ***"),
        ("psql --password hunter22 -U me", "psql --password *** -U me"),
        # not secrets
        ("http://localhost:8080/users/me@example.org", None),
        ("pad_token: [PAD], max_tokens=1000", None),
        ("KeyError: 'costs', unexpected token: comma", None),
        ("mail me@example.org, see http://example.org/a@b", None),
        ("a cookie: chocolate, an author: Jane Austen", None),
    ],
)
def test_masked(text: str, kept: str | None) -> None:
    assert redact(text) == (text if kept is None else kept)


def test_values_of_the_environment_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SOME_AUTH", "SLACK_WEBHOOK_URL", "MY_COOKIE"):
        monkeypatch.setenv(name, IN_THE_ENVIRONMENT)
        assert redact(f"it said {IN_THE_ENVIRONMENT}.") == "it said ***."
        monkeypatch.delenv(name)


METADATA, LOCAL, PAGE = "http://169.254.169.254/latest", "http://localhost/admin", "https://a.org"


@pytest.mark.parametrize("make", GRAPHS)
def test_no_address_in_a_text_is_opened(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []

    def refuse(*given: Any, **named: Any) -> Any:
        opened.append(given)
        raise OSError("no network in this test")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    text = f"Vague words. See {METADATA} and {LOCAL}, {PAGE} and file:///etc/passwd"
    page = document(text, text, source=METADATA, url=LOCAL, images=[PAGE])
    asked = {"question": f"What is at {METADATA}?", "documents": [page]}
    assert make().invoke(asked)["answer"]
    assert opened == []


def test_every_test_that_security_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) >= 12
    assert [path for path in named if not (ROOT / path).exists()] == []
