"""Servers, started as users start them, in a folder with two small indexes."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from selfcorrect_rag.cli.main import main

ROOT = Path(__file__).parents[2]
TOWNS = ("Tarnholm", "Vinter", "Grauhafen")
START = 180
"""Seconds that a server may take on a busy machine."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index of towns, and one that plays the web."""
    root = tmp_path_factory.mktemp("served")
    for name, text in (
        ("notes", "{0} is a town in Norland. It was founded by Oskar Lind."),
        ("pages", "{0} on the web: Oskar Lind founded {0}."),
    ):
        (root / name).mkdir()
        for town in TOWNS:
            page = f"# {town}\n\n{text.format(town)}\n"
            (root / name / f"{town}.md").write_text(page, encoding="utf-8")
        assert main(["index", str(root / name), "--index", str(root / f"{name}-index")]) == 0
    return root


def environment(folder: Path) -> dict[str, str]:
    """The environment of commands, with this checkout first and a private state folder."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    state = str(folder / "state")
    return {**os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": state, "NO_COLOR": "1"}


@contextmanager
def started(folder: Path, *arguments: str) -> Iterator[tuple[str, Path]]:
    """Run a serving command at a free port until it listens; gives its address and its log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = folder / f"{arguments[0]}.log"
    run = [sys.executable, "-m", "selfcorrect_rag.cli.main", *arguments, "--port", str(port)]
    with log.open("w") as out:
        process = subprocess.Popen(
            run, cwd=folder, env=environment(folder), stdout=out, stderr=subprocess.STDOUT
        )
    deadline = time.monotonic() + START
    try:
        while socket.socket().connect_ex(("127.0.0.1", port)):
            text = log.read_text(encoding="utf-8")
            assert process.poll() is None, text[-4000:]
            assert time.monotonic() < deadline, text[-4000:]
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}", log
    finally:
        process.terminate()
        process.wait(timeout=60)
