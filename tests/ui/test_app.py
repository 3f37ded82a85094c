"""The local page over HTTP: ask, watch, approve, weigh, past runs; hostile requests."""

import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langgraph.graph.state import CompiledStateGraph
from starlette.testclient import TestClient

from selfcorrect_rag import InstructRAGSettings
from selfcorrect_rag.serving import Parts, ServingConfig
from selfcorrect_rag.serving.config import BadOption
from selfcorrect_rag.ui import runs as live_runs
from selfcorrect_rag.ui.app import make_app
from selfcorrect_rag.ui.runs import PastRun, RunStore
from selfcorrect_rag.ui.weigh import weigh, weighable
from tests.agents.scripted import reflecting
from tests.crag_runs import PagesSearch, WordEvaluator, document
from tests.four_graphs import create
from tests.nodes.parts import candidate
from tests.providers import chat

QUESTION = "Who wrote Emma?"
HOST = "http://127.0.0.1"


class Scripted(Parts):
    """Parts whose models are scripts; retrieval waits for the gate."""

    gate = threading.Event()

    def graph(self, name: str, settings: Any = None, **options: Any) -> CompiledStateGraph[Any]:
        def retrieve(query: str) -> list[Document]:
            assert self.gate.wait(30)
            return [document("Vague.")]

        options["settings"] = settings
        llm, corrected = chat("Jane Austen."), (WordEvaluator(), PagesSearch())
        return create(name, reflecting(), llm, retrieve, *corrected, **options)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("selfcorrect_rag.ui.app.Parts", Scripted)
    Scripted.gate = threading.Event()
    Scripted.gate.set()
    config, store = ServingConfig(weight_isrel=0.5), RunStore(tmp_path / "runs.sqlite")
    app = make_app(config, store, ["127.0.0.1"])
    with TestClient(app, base_url=HOST) as made:
        yield made


def start(client: TestClient, **given: str) -> str:
    """Ask, and return the address of the run."""
    form = {"question": QUESTION, "graph": "self_rag", **given}
    answer = client.post("/ask", data=form, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def page_with(client: TestClient, address: str, text: str) -> str:
    """Return the page of a run as soon as it has a text."""
    deadline = time.monotonic() + 60
    while text not in (page := client.get(address).text):
        assert time.monotonic() < deadline, page
        time.sleep(0.02)
    return page


def finished(client: TestClient, address: str) -> str:
    """Wait for the end of a run, and return its page."""
    return page_with(client, address, 'aria-labelledby="answer-heading"')


@pytest.mark.parametrize("graph", ["self_rag", "crag"])
def test_a_question_is_asked_watched_and_kept(client: TestClient, graph: str) -> None:
    address = start(client, graph=graph)
    page = finished(client, address)
    result = client.get(f"{address}.json").json()
    assert result["answer"]
    assert result["answer"].split("[")[0] in page
    assert QUESTION in client.get("/runs").text
    assert QUESTION in client.get("/runs", params={"q": "Emma"}).text
    assert QUESTION not in client.get("/runs", params={"q": "100%"}).text
    assert "<style>" in client.get(f"{address}.html").text
    assert client.post(f"{address}/delete").status_code == 200
    assert client.get(address).status_code == 404


def test_steps_come_while_it_runs_and_a_run_can_be_stopped(client: TestClient) -> None:
    Scripted.gate.clear()
    address = start(client)
    page = page_with(client, address, "<li>Retrieve</li>")
    assert "Read question 0." in page  # with its seconds
    assert "/stop" in page
    assert "going on" in client.get("/runs").text
    stopped = client.post(f"{address}/stop")
    Scripted.gate.set()
    assert live_runs.STOPPED in stopped.text


@pytest.mark.parametrize(
    ("reply", "searched"),
    [
        ({"approve": "yes", "query": ""}, "wrote, Emma"),
        ({"approve": "yes", "query": "Emma author"}, "Emma author"),
        ({"approve": "no", "query": "Emma author"}, None),
    ],
)
def test_a_search_waits_for_approval(
    client: TestClient, reply: dict[str, str], searched: str | None
) -> None:
    address = start(client, graph="crag", approve_search="true")
    assert "wrote, Emma" in page_with(client, address, "Do not search")
    client.post(f"{address}/reply", data=reply)
    finished(client, address)
    result = client.get(f"{address}.json").json()
    assert bool(result["web_results"]) == (searched is not None)
    if searched:
        assert result["web_query"] == searched


def test_other_weights_choose_without_a_model(client: TestClient) -> None:
    address = start(client, closed_set="false", hard_constraints="[Irrelevant]")
    page = finished(client, address)
    assert re.search('name="weight_isrel"[^>]*value="0.5"', page), "as the configuration says"
    again = client.get(re.search(r'href="(/\?[^"]*)"', page)[1].replace("&amp;", "&")).text  # type: ignore[index]
    assert "<option selected>false</option>" in again
    assert 'value="[&#34;[Irrelevant]&#34;]"' in again
    result = client.get(f"{address}.json").json()
    other = client.get(address, params={"weight_isrel": "0", "weight_sequence": "3"})
    assert other.status_code == 200
    assert client.get(f"{address}.json").json() == result, "the run itself stays"
    assert client.get(address, params={"weight_isrel": "much"}).status_code == 422


def past(result: dict[str, Any], graph: str = "self_rag") -> PastRun:
    return PastRun("1", QUESTION, graph, "notes", {}, result=result)


def test_weighing_picks_the_best_by_the_new_weights() -> None:
    rows = [
        candidate("Austen", ISSUP=0.9, sequence_probability=0.2, chosen=True),
        candidate("Bronte", ISSUP=0.1, sequence_probability=0.9),
    ]
    run = past({"candidates": rows, "answer": "Austen"})
    assert weighable(run)["weight_issup"] == 1.0
    result, changes = weigh(run, {"weight_issup": 0.0})
    assert result["answer"] == "Bronte"
    assert [c["chosen"] for c in result["candidates"]] == [False, True]
    assert "“Bronte” in place of “Austen”" in changes[0]
    same, changes = weigh(run, {"weight_issup": 2.0})
    assert (same["answer"], changes) == ("Austen", [])


@pytest.mark.parametrize(
    ("given", "action"),
    [({"upper": 0.4}, "correct"), ({"lower": 0.55, "upper": 0.6}, "incorrect"), ({}, "ambiguous")],
)
def test_other_thresholds_take_another_action(given: dict[str, float], action: str) -> None:
    grades = [{"score": 0.5}, {"score": -0.2}]
    thresholds = {"upper": 0.6, "lower": -0.9}
    run = past({"grades": grades, "thresholds": thresholds, "action": "ambiguous"}, "crag")
    result, changes = weigh(run, given)
    assert result["action"] == action
    assert bool(changes) == (action != "ambiguous")


def test_the_form_offers_every_setting_with_its_default(client: TestClient) -> None:
    page = client.get("/", params={"graph": "instruct_rag", "order": "best_first"}).text
    assert all(f'name="{name}"' in page for name in InstructRAGSettings.model_fields)
    assert '<option value="">default (best_last)</option>' in page
    assert "<option selected>best_first</option>" in page
    assert 'name="passages" value="" placeholder="5"' in page
    crag = client.get("/", params={"graph": "crag", "question": 'so\u00adft\u202e"<'}).text
    assert "<option>true</option>" in crag
    assert "so\u00adft\u202e&#34;&lt;</textarea>" in crag, "sent back as it was written"


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"question": "  "}, 422),
        ({"graph": "other"}, 422),
        ({"passages": "0"}, 422),
        ({"passages": "many"}, 422),
        ({"question": "x" * 300_000}, 413),
    ],
)
def test_bad_forms_are_refused_and_keep_what_was_written(
    client: TestClient, given: dict[str, str], status: int
) -> None:
    form = {"question": QUESTION, "graph": "self_rag", **given}
    answer = client.post("/ask", data=form)
    assert answer.status_code == status
    if "passages" in given:
        assert 'role="alert"' in answer.text
        assert QUESTION in answer.text


def test_a_form_of_unknown_length_is_refused(client: TestClient) -> None:
    kind = {"content-type": "application/x-www-form-urlencoded"}
    form = (block for block in [b"graph=crag&question=", b"x" * 300_000])
    assert client.post("/ask", content=form, headers=kind).status_code == 413


def test_other_pages_may_not_ask_and_ours_load_nothing_from_elsewhere(client: TestClient) -> None:
    for headers, status in ({"host": "evil.example"}, 400), ({"origin": "https://evil"}, 403):
        form = {"question": QUESTION, "graph": "self_rag"}
        assert client.post("/ask", data=form, headers=headers).status_code == status
    policy = client.get("/").headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_the_runs_are_private_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfcorrect_rag.ui.runs.MAX_RUNS", 3)
    store = RunStore(tmp_path / "runs.sqlite")
    assert store.path.stat().st_mode & 0o077 == 0
    for i in range(5):
        store.add(PastRun(str(i), f"Q{i}", "crag", "notes", {}, float(i), result={"n": i}))
    assert [run.id for run in store.find()] == ["4", "3", "2"]
    (tmp_path / "text").write_text("no database, " * 100)
    with pytest.raises(BadOption, match="--runs"):
        RunStore(tmp_path / "text")


def test_only_so_many_runs_at_a_time(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_runs, "MAX_LIVE", 1)
    Scripted.gate.clear()
    first = start(client)
    second = client.post("/ask", data={"question": QUESTION, "graph": "self_rag"})
    assert second.status_code == 422
    assert "end one of them first" in second.text
    Scripted.gate.set()
    finished(client, first)
