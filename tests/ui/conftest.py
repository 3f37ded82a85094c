"""The page as users start it: the command in a process of its own, on the demo corpus."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from selfcorrect_rag.demo.loaders import DEMO_INDEX

from selfcorrect_rag.demo import demo_index

ROOT = Path(__file__).parents[2]
LEE = "Where was Harper Lee born?"
"""A question that the demo's second corpus answers, and the first does not."""
SLOW = 400.0
"""Seconds that a busy machine may take for anything."""


@contextmanager
def served(folder: Path, *options: str, ready: bool = True) -> Iterator[httpx.Client]:
    """A client of ``selfcorrect-rag ui`` started in ``folder``, at a free port; ended by Ctrl-C."""
    command = [sys.executable, "-m", "selfcorrect_rag.cli", "ui", "--port", "0", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    try:
        address = process.stdout.readline().split()[0]
        with httpx.Client(base_url=address, timeout=SLOW) as client:
            client.headers["x-process"] = str(process.pid)
            if ready:
                until(lambda: client.get("/").status_code == 200)
            yield client
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(SLOW)


def until(done: Callable[[], Any]) -> Any:
    """What ``done`` gives, once it is true."""
    end = time.monotonic() + SLOW
    while not (found := done()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="session")
def made_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of the demo corpus, which takes a while to make; other tests make it here too."""
    path = tmp_path_factory.getbasetemp() / "demo"
    with demo_index(path):
        return path


@pytest.fixture
def folder(tmp_path: Path, made_index: Path) -> Path:
    """A folder in which the demo's index is already made."""
    shutil.copytree(made_index, tmp_path / DEMO_INDEX)
    return tmp_path


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory, made_index: Path) -> Iterator[httpx.Client]:
    """One server for all tests that do not end it."""
    folder = tmp_path_factory.mktemp("ui")
    shutil.copytree(made_index, folder / DEMO_INDEX)
    with served(folder) as found:
        yield found


def ask(client: httpx.Client, question: str, graph: str = "self_rag", **knobs: str) -> str:
    """The id of a run that is over, asked by a plain form."""
    form = {"question": question, "graph": graph}
    form |= {f"{graph}.{name}": value for name, value in knobs.items()}
    answer = client.post("/ask", data=form)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"].rpartition("/")[2]


def paused(client: httpx.Client) -> str:
    """The id of a run that waits with its search for a person."""
    form = {"question": LEE, "graph": "crag", "crag.approve_search": "on"}
    answer = client.post("/ask", data=form)
    assert answer.status_code == 303
    key = answer.headers["location"].rpartition("/")[2]
    page = client.get(f"/runs/{key}").text  # as often as one reloads
    assert client.get(f"/runs/{key}").text == page
    assert f"/runs/{key}/reply" in page
    assert "Do not search" in page
    assert client.get("/runs.json").json()["going"][0]["state"] == "waiting"
    return key


@pytest.fixture(scope="module")  # its event loop would be in the way of other modules' own
def chromium() -> Iterator[Any]:
    """A real browser; CHROMIUM names one, else it is the one on the path."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium on the path, none in CHROMIUM")
    with playwright.sync_playwright() as p:
        started = p.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()
