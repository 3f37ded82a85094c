"""Secrets are planted wherever one may be, and everything that a run leaves behind is searched."""

import asyncio
import io
import json
import logging
import sqlite3
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from pydantic import SecretStr

from selfcorrect_rag import create_crag, create_instruct_rag, create_self_crag, create_self_rag
from selfcorrect_rag.errors import (
    BadInput,
    BadSettings,
    DiskFull,
    EngineFailed,
    MissingExtra,
    NodeFailed,
    RetrievalFailed,
    SelfCorrectError,
    WebSearchFailed,
    redact,
    wrap_errors,
)
from selfcorrect_rag.models import ChatEvaluator, PromptedReflectionLLM, VLLMServerReflectionLLM
from selfcorrect_rag.models.identity import identity
from selfcorrect_rag.render import render_run
from selfcorrect_rag.search import TavilyWebSearch, WebSearch
from tests.providers import Provider
from tests.scripted import document
from tests.search.test_tavily import Tavily, tavily

__all__ = ["tavily"]

IN_THE_ENVIRONMENT = "plain-looking-value-of-a-variable"
TAVILY = "tvly-dev-planted0123456789"
PROVIDER = "sk-planted-ABCDEFGHIJKLMNOP"
DATABASE = "planted-database-password"
SECRETS = (IN_THE_ENVIRONMENT, TAVILY, PROVIDER, DATABASE)
SAID = (
    f"401 for Authorization: Bearer {PROVIDER}; postgresql://rag:{DATABASE}@db/x; "
    f"{{'api_key': '{TAVILY}'}} {IN_THE_ENVIRONMENT}"
)
"""What a careless library puts into its error."""


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
    """Raises what this package has for a retriever that fails."""
    raise RetrievalFailed(f"{SAID}\n\x1b[2J{SAID * 500}")


def misused(*_: Any) -> Any:
    """Raises an error of this package that is no fault of a part."""
    raise BadInput(SAID)


def judge(prompt: str) -> str:
    return "no" if "exact information" in prompt else "Austen [1]."


def graphs(web: TavilyWebSearch, fails: str, **options: Any) -> Iterator[Any]:
    """The four graphs, with the part that fails."""
    if fails.startswith("node"):
        options["nodes"] = {"retrieve": misused if fails == "node, by no fault" else refuses}
    model = Keyed(answer=broken if fails == "model" else judge)
    works: Any = lambda query: [document("Emma")]  # noqa: E731
    retriever = {"retriever": broken, "retriever, by our own error": refuses}.get(fails, works)
    graded = Keyed(answer=broken) if fails == "evaluator" else Keyed(answer=judge)
    corrected = (retriever, ChatEvaluator(graded), web)
    rewriter: Any = RunnableLambda(broken) if fails == "rewriter" else None
    reflecting = PromptedReflectionLLM(model)
    yield create_self_rag(reflecting, retriever, **options)
    yield create_crag(model, *corrected, rewriter=rewriter, **options)
    yield create_self_crag(reflecting, *corrected, rewriter=rewriter, **options)
    yield create_instruct_rag(model, retriever, **options)


@pytest.mark.parametrize(
    "fails",
    [
        "nothing", "model", "retriever", "retriever, by our own error", "evaluator", "rewriter",
        "web", "node, by our own error", "node, by no fault",
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["sync", "async"])
def test_no_secret_is_left_behind(
    tavily: Tavily,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: str,
    form: str,
) -> None:
    monkeypatch.setenv("SOME_DATABASE_PASSWORD", IN_THE_ENVIRONMENT)
    caplog.set_level(logging.DEBUG, logger="selfcorrect_rag")
    if fails == "web":
        refusal = json.dumps({"detail": {"error": SAID}})
        monkeypatch.setattr(tavily, "answer", lambda body: (400, refusal))
    web = TavilyWebSearch(TAVILY, api_base_url=tavily.url)
    tracer, left, shown = Tracer(), [], io.StringIO()
    saver = SqliteSaver(sqlite3.connect(tmp_path / "threads.sqlite", check_same_thread=False))
    # Async runs need a saver of their own kind; what they leave is looked at as results.
    options: dict[str, Any] = {"checkpointer": saver} if form == "sync" else {}
    with redirect_stdout(shown), redirect_stderr(shown):
        for number, graph in enumerate(graphs(web, fails, **options)):
            config: Any = {"configurable": {"thread_id": str(number)}, "callbacks": [tracer]}
            asked = {"question": "Who wrote Emma?"}
            events: list[Any] = []
            try:
                if form == "sync":
                    modes = ["values", "custom", "updates"]
                    events += graph.stream(asked, config, stream_mode=modes)
                else:
                    events.append(("values", asyncio.run(graph.ainvoke(asked, config))))
            except SelfCorrectError as error:
                left.append(str(error) + repr(error))
                left += traceback.format_exception_only(error)
            else:
                result = [part for mode, part in events if mode == "values"][-1]
                left += [render_run(result), json.dumps(result, default=str)]
            left += [repr(events), repr(graph), repr(vars(graph).get("nodes"))]
    left += [shown.getvalue(), caplog.text, repr(web), identity(Keyed(answer=judge))]
    own = [line for line in tracer.told if not line.startswith(("on_chain_error", "on_llm_error"))]
    left += own
    left += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir()]
    found = [(secret, text[:300]) for secret in SECRETS for text in left if secret in text]
    assert found == []
    assert fails in ("nothing", "web") or any(redact(SAID)[:20] in text for text in left)


def test_a_fault_that_a_part_raises_is_one_short_line_without_secrets() -> None:
    class Own(WebSearch):
        name = "own"

        def search(self, query: str, k: int) -> list[Document]:
            raise WebSearchFailed(f"{SAID}\n\x1b[2J{SAID * 500}", "try\nagain") from OSError("why")

        async def asearch(self, query: str, k: int) -> list[Document]:
            return self.search(query, k)

    model = Keyed(answer=judge)
    graph = create_crag(model, lambda query: [document("Emma")], ChatEvaluator(model), Own())
    result = graph.invoke({"question": "Who wrote Emma?"})
    assert result["web_failure"].startswith("401 for Authorization: Bearer ***")
    for text in (result["web_failure"], *result["notes"]):
        assert text.isprintable()
        assert len(text) < 700
        assert not [secret for secret in SECRETS[1:] if secret in text]
    with (
        pytest.raises(WebSearchFailed, match=r"^no route$"),
        wrap_errors(WebSearchFailed, "the search"),
    ):
        raise WebSearchFailed(OSError("no route"))  # type: ignore[arg-type]
    with pytest.raises(WebSearchFailed) as raised, wrap_errors(WebSearchFailed, "the search"):
        Own().search("q", 1)
    assert len(str(raised.value)) == len(raised.value.reason) == 600
    assert str(raised.value).isprintable()
    assert isinstance(raised.value.__cause__, OSError)


HOSTILE = f"{SAID}\n\x1b[2J{SAID * 500}"


@pytest.mark.parametrize(
    "given",
    [
        BadInput(HOSTILE), BadSettings(HOSTILE, "upper"), DiskFull(28, HOSTILE),
        MissingExtra(HOSTILE), RetrievalFailed(HOSTILE), OSError(28, HOSTILE), {HOSTILE: 1},
    ],
    ids=lambda given: type(given).__name__,
)  # fmt: skip
@pytest.mark.parametrize("form", ["sync", "async"])
def test_what_a_custom_node_does_wrong_is_a_short_line_in_the_thread(given: Any, form: str) -> None:
    def node(state: Any) -> Any:
        if isinstance(given, Exception):
            raise type(given)(*given.args)
        return given

    graph = create_instruct_rag(
        Keyed(answer=judge),
        lambda query: [],
        nodes={"write_rationale": node},
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    asked = {"question": "Who wrote Emma?"}
    kept = type(given) if isinstance(given, SelfCorrectError) else NodeFailed
    ask: Any = graph.invoke
    if form == "async":
        ask = lambda *given: asyncio.run(graph.ainvoke(*given))  # noqa: E731
    with pytest.raises(kept):
        ask(asked, config)
    (task,) = graph.get_state(config).tasks
    said = str(task.error)
    assert "401 for Authorization: Bearer ***" in said
    assert not [secret for secret in SECRETS[1:] if secret in said]
    assert said.isprintable()
    assert len(said) < 800


def test_what_tavily_says_is_one_short_line(
    tavily: Tavily, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = json.dumps({"detail": {"error": "no\n\x1b[2J" * 5000}})
    monkeypatch.setattr(tavily, "answer", lambda body: (400, refusal))
    with pytest.raises(WebSearchFailed, match="does not take the query") as raised:
        tavily.web().search("q", 1)
    assert len(str(raised.value)) < 400
    assert str(raised.value).isprintable()


def test_a_server_with_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineFailed) as raised:
        VLLMServerReflectionLLM(
            base_url="http://127.0.0.1:9", api_key=SecretStr(PROVIDER), retry_seconds=0
        )
    assert PROVIDER not in str(raised.value)
    with pytest.raises(EngineFailed, match="give the key as api_key") as raised:
        VLLMServerReflectionLLM(base_url=f"http://rag:{DATABASE}@127.0.0.1:9")
    assert DATABASE not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("postgresql://rag:secret@db:5432/x", "postgresql://***@db:5432/x"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("Incorrect key: sk-proj-abcdefghijkl", "Incorrect key: sk-***"),
        ("{'api_key': 'abcdef', 'k': 5}", "{'api_key': '***', 'k': 5}"),
        ("https://x.org/?access_token=abcdef&k=5", "https://x.org/?access_token=***&k=5"),
        ("password: hunter22", "password: ***"),
        ("https://x.org/?token=abcdefghijklmnop&k=5", "https://x.org/?token=***&k=5"),
        ("{'token': 'abcdef'}", "{'token': '***'}"),
        ("Authorization: Token abcdefghijk", "Authorization: Token ***"),
        ("'authorization': 'Basic dXNlcjpw'", "'authorization': 'Basic ***'"),
        ("secret_key=abcdef, private-key: abcdef", "secret_key=***, private-key: ***"),
        ("refresh_token=abcdef", "refresh_token=***"),
        ("postgres://u:pa/ss@h/d", "postgres://***@h/d"),
        ("postgres://u:p@ss@h", "postgres://***@h"),
        ("'redis://:pa/ss@h', 'me@example.org'", "'redis://***@h', 'me@example.org'"),
        ("AKIAIOSFODNN7EXAMPLE is no key", "AKIA*** is no key"),
        ("github_pat_11ABCDEFG0abcdefghij", "github_pat_***"),
        ("gho_16C7e42F292c6912E7710c838347Ae178B4a", "gho_***"),
        ("xoxb-123456789012-abcdefghijkl", "xoxb-***"),
        ("the basic idea of this, a bearer of news", None),
        ("http://localhost:8080/users/me@example.org", None),
        ("pad_token: [PAD], max_tokens=1000", None),
        ("see the token: internationalization", None),
        ("KeyError: 'costs', unexpected token: comma", None),
        ("mail me@example.org, see http://example.org/a@b", None),
        ("the risk-assessment-of-something is basic", None),
    ],
)
def test_masked(text: str, kept: str | None) -> None:
    assert redact(text) == (text if kept is None else kept)
