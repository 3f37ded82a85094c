"""``selfcorrect-rag ui`` as a process: its options, how it begins and how it ends."""

import os
import signal
import socket
from pathlib import Path

import pytest
from langchain_core.documents import Document

from selfcorrect_rag import cli
from selfcorrect_rag.search import BM25Index
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.hosts import LOOPBACK
from selfcorrect_rag.ui.places import Places
from selfcorrect_rag.ui.server import Server
from selfcorrect_rag.ui.store import RunStore
from tests.ui.conftest import ask, paused, served, until


def test_other_indexes_are_asked_and_a_stopped_server_keeps_its_runs(tmp_path: Path) -> None:
    with BM25Index(tmp_path / "notes") as index:
        index.add([Document("Priya Raman approves the deployments.", metadata={"title": "Notes"})])
    with BM25Index(tmp_path / "beside") as index:
        index.add([Document("The office is on the third floor.", metadata={"title": "Office"})])
    options = ("--index", "notes", "--runs", "own.sqlite")
    with served(tmp_path, *options, ready=False) as client:
        first = client.get("/")  # it listens at once: the address was printed
        assert first.status_code == 503
        assert "Opening" in first.text
        until(lambda: client.get("/").status_code == 200)
        assert client.get("/graphs.json").json()["indexes"] == ["notes", "beside"]
        key = ask(client, "Who approves the deployments?")
        assert client.get(f"/runs/{key}.json").json()["answer"] == "Priya Raman"
        form = {"question": "Which floor is the office on?", "index": "beside"}
        answer = client.post("/ask", data={**form, "graph": "self_rag"})
        run = client.get(answer.headers["location"] + ".json").json()
        assert run["made"]["index"] == "beside"
        assert "third" in run["answer"]
        refused = client.post(
            "/ask",
            data={"question": "Who?", "graph": "crag", "crag.approve_search": "on"},
        )
        failed = client.get(refused.headers["location"])
        assert "there is no search to ask about" in failed.text
        assert "Traceback" not in failed.text
    kept = RunStore(tmp_path / "own.sqlite").get(key)
    assert kept
    assert kept.answer == "Priya Raman"


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_keeps_the_run_that_someone_watches(folder: Path, end: signal.Signals) -> None:
    with served(folder) as client:
        key = paused(client)
        with client.stream("GET", f"/runs/{key}/events") as stream:
            lines = stream.iter_lines()
            assert any(line == "event: waiting" for line in lines)
            os.kill(int(client.headers["x-process"]), end)
            assert "event: over" not in list(lines)  # a browser asks again, and is told later
    kept = RunStore(folder / ".selfcorrect" / "runs.sqlite").get(key)
    assert kept
    assert kept.state == "stopped"
    assert kept.result["passages"]


def test_the_end_closes_models_and_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(ServingConfig(), [], RunStore(tmp_path / "runs.sqlite"), LOOPBACK)
    closed: list[str] = []
    monkeypatch.setattr(Places, "open", lambda places: server.handle_exit(signal.SIGTERM, None))
    monkeypatch.setattr(Places, "close", lambda places: closed.append(places.first))
    monkeypatch.setattr(signal, "raise_signal", lambda number: closed.append("the process"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server.answer(listening)
    assert closed == ["the demo corpus", "the process"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--index", "nowhere"], "--index: no folder nowhere"),
        (["--host", "0.0.0.0"], "--allow-host NAME"),
        (["--port", "99999"], "--port 99999"),
        (["--runs", "."], "--runs ."),
    ],
)
def test_wrong_options_are_one_line(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ui", *options]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_indexes_in_the_same_folder_are_offered(tmp_path: Path) -> None:
    for name in ("one", "two"):
        BM25Index(tmp_path / name).close()
    (tmp_path / "none").mkdir()
    places = Places(ServingConfig(index=tmp_path / "one"), [tmp_path / "two"])
    assert places.names == [str(tmp_path / "one"), str(tmp_path / "two")]
