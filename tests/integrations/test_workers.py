"""Workers as processes on loopback: a load with a kill and a stop, HTTP, a Postgres that goes."""

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from benchmarks.serving_load import Process, measured
from integrations.workers.__main__ import main


def test_a_load_with_a_worker_killed_and_another_stopped(database: str) -> None:
    figures = measured(database, runs=100, slots=4)
    assert figures["lost"] == figures["doubled"] == figures["left"] == 0
    assert figures["calls"] == 300 + figures["repeated"]
    # The kill was in the middle: it cut what the worker held, and nothing else was taken twice.
    assert 1 <= figures["taken_over"] <= 4
    # Of each run that it held, the node that was running begins again, with its one call.
    assert figures["repeated"] + figures["cut"] <= figures["taken_over"]


class Proxy:
    """What lies between a worker and Postgres: it can be away, and break off what is under way."""

    def __init__(self, address: str) -> None:
        there = urlsplit(address)
        self._there = (there.hostname, there.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.is_away = True
        port = self._listener.getsockname()[1]
        self.address = address.replace(f":{there.port}/", f":{port}/")
        threading.Thread(target=self._accept, daemon=True).start()

    def go_away(self) -> None:
        self.is_away = True
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.go_away()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                if self.is_away:
                    here.close()
                    continue
                there = socket.create_connection(self._there)
                self._open += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=self._copy, args=(one, other), daemon=True).start()

    @staticmethod
    def _copy(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    between = Proxy(database)
    yield between
    between.close()


@pytest.fixture
def worker(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    monkeypatch.setenv("WORKERS_TOKEN", "secret")
    started = Process(proxy.address, tmp_path, slots=2)
    yield started
    started.process.kill()
    started.process.wait()


def wait_until_it_listens(worker: Process) -> None:
    for _ in range(600):
        with suppress(httpx.TransportError):
            httpx.get(f"{worker.url}/health/live")
            return
        time.sleep(0.1)
    raise AssertionError(worker.log.read_text())


def wait_until_it_listens_no_more(worker: Process) -> None:
    with suppress(httpx.ConnectError):
        for _ in range(100):
            httpx.get(f"{worker.url}/health/live")
            time.sleep(0.05)
        raise AssertionError(worker.log.read_text())


OPEN = "INSERT INTO runs (id, graph, thread, request) VALUES (%s, %s, %s, '{\"input\": {}}')"


def test_a_worker_and_its_clients(database: str, proxy: Proxy, worker: Process) -> None:
    with httpx.Client(
        base_url=worker.url,
        headers={"Authorization": "Bearer secret"},
        timeout=70,
    ) as client:

        def post(**asked: Any) -> httpx.Response:
            return client.post("/runs", json=asked)

        def question(number: int) -> dict[str, Any]:
            return {"graph": "self_rag", "input": {"question": f"Question {number}?"}}

        # Postgres is away at the start: the process lives and says what it waits for.
        wait_until_it_listens(worker)
        assert client.get("/health/live").json() == {"status": "live"}
        not_ready = client.get("/health/ready")
        assert not_ready.status_code == 503
        assert "Postgres" in not_ready.json()["waits_for"]
        away = post(**question(1))
        assert (away.status_code, away.headers["retry-after"]) == (503, "2")
        assert away.json()["error"].startswith("Postgres does not answer: ")

        # It comes, and runs are taken.
        proxy.is_away = False
        worker.wait_until_ready()
        assert client.get("/health/ready").json() == {"ready": True, "runs": 0}
        asked = post(**question(1), id="one")
        assert (asked.status_code, asked.json()["thread"]) == (202, "one")
        ended = client.get("/runs/one", params={"wait": 30}).json()
        assert (ended["status"], ended["error"]) == ("done", None)
        assert ended["output"]["answer"] == "Answer 1. Answer 1."
        assert ended["worker"] == worker.name

        # The same request again is the same run; another under its id is refused.
        again = post(**question(1), id="one")
        assert (again.status_code, again.json()) == (200, ended)
        other = post(**question(2), id="one")
        assert (other.status_code, other.json()["error"]) == (
            409,
            "one is another run: choose another id",
        )

        # What is wrong is one sentence.
        for asked_, status, error in [
            ({**question(1), "graph": "crag"}, 422, "graph: there is no crag, but self_rag"),
            ({"graph": "self_rag"}, 422, "give either input or"),
            ({"graph": "self_rag", "resume": "yes"}, 422, "resume needs the thread"),
            ({**question(1), "id": "a b"}, 422, "id: String should match pattern"),
            ({**question(1), "tread": "1"}, 422, "tread: Extra inputs are not permitted"),
            ({**question(1), "context": {"x": "y" * 2_000_000}}, 413, "more than 2000000 bytes"),
        ]:
            refused = post(**asked_)
            assert refused.status_code == status
            assert error in refused.json()["error"]
        assert client.post("/runs", content="{").json()["error"].startswith("not JSON")
        assert client.get("/runs/none").status_code == 404
        assert client.get("/runs/one", params={"wait": "long"}).status_code == 422
        assert client.post("/runs/one/retry").status_code == 409
        assert client.get("/runs/one", headers={"Authorization": "secret"}).status_code == 401
        for body, error in [
            ('{"score": NaN}', "not JSON: Out of range float"),
            ('{"score": [1e999]}', "not JSON: Out of range float"),
            (f'{{"question": {"[" * 99}{"]" * 99}}}', "more than 100 lists and objects"),
            (f'{{"question": {"[" * 99_999}{"]" * 99_999}}}', "not JSON: maximum recursion"),
        ]:
            refused = client.post("/runs", content=f'{{"graph": "self_rag", "input": {body}}}')
            assert refused.status_code == 422
            assert error in refused.json()["error"]
        assert client.get("/runs/%00").status_code == 404
        assert client.post("/runs/%00/retry").status_code == 404
        # Half a surrogate pair, as JavaScript cuts an emoji, is no reason to refuse a question.
        cut = r'{"graph": "self_rag", "id": "cut", "input": {"question": "Question 3?\ud83d"}}'
        assert client.post("/runs", content=cut).status_code == 202
        run = client.get("/runs/cut", params={"wait": 30}).json()
        assert run["output"]["answer"] == "Answer 3. Answer 3."

        # Web pages may not call it, by whatever name; only health is for all.
        for header in ({"Host": "rag.example"}, {"Origin": "https://rag.example"}):
            for method, path in [
                ("POST", "/runs"),
                ("GET", "/runs/one"),
                ("POST", "/runs/one/retry"),
            ]:
                refused = client.request(method, path, json=question(1), headers=header)
                assert (refused.status_code, "--allow-host" in refused.text) == (403, True)
            assert client.get("/health/ready", headers=header).status_code == 200

        # Postgres goes in the middle of runs, and comes back: they end once each.
        names = [post(**question(number)).json()["id"] for number in range(20)]
        assert client.get(f"/runs/{names[3]}", params={"wait": 30}).json()["status"] == "done"
        proxy.go_away()
        assert client.get(f"/runs/{names[0]}").status_code == 503
        assert client.get("/health/ready").status_code == 503
        proxy.is_away = False
        for number, name in enumerate(names):
            run = client.get(f"/runs/{name}", params={"wait": 30}).json()
            assert run["output"]["answer"] == f"Answer {number}. Answer {number}."
            assert run["attempts"] <= 2

        # A worker that is told to stop takes nothing more, also while a client still waits.
        with psycopg.connect(database, autocommit=True) as session:
            session.execute(OPEN, ("waited-for", "no_such_graph", "t"))
            poll = socket.create_connection(("127.0.0.1", urlsplit(worker.url).port))
            poll.sendall(
                b"GET /runs/waited-for?wait=60 HTTP/1.1\r\nHost: localhost\r\n"
                b"Authorization: Bearer secret\r\n\r\n"
            )
            client.get("/runs/waited-for")  # by its answer the poll is under way
            worker.process.send_signal(signal.SIGTERM)
            wait_until_it_listens_no_more(worker)
            session.execute(OPEN, ("late", "self_rag", "u"))
            session.execute("NOTIFY runs")
            time.sleep(0.7)
            late = session.execute("SELECT attempts FROM runs WHERE id = 'late'").fetchone()
            assert worker.process.poll() is None
            assert late == (0,)
            session.execute("UPDATE runs SET status = 'done', ended_at = now() WHERE thread = 't'")
        with poll:
            assert poll.recv(99).startswith(b"HTTP/1.1 200 ")
        worker.process.wait(timeout=60)
        assert worker.process.returncode in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("address", "options", "error"),
    [
        ("", [], "POSTGRES_URI is not set: postgresql://"),
        ("postgresql://", ["--host", "0.0.0.0"], "--host 0.0.0.0 is open to other machines"),
    ],
)
def test_what_the_command_refuses(
    address: str, options: list[str], error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTGRES_URI", address)
    monkeypatch.setattr("sys.argv", ["workers", *options])
    monkeypatch.setattr("uvicorn.Server.run", lambda server: None)
    with pytest.raises(SystemExit, match=error):
        main()
