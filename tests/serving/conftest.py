"""The real server, started once by the command that users start it with."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.documents import Document
from langgraph_sdk import get_sync_client
from nano_training.models import tiny_t5_path

from selfcorrect_rag.search import BM25Index
from selfcorrect_rag.serving.langgraph_server import WARM

ROOT = Path(__file__).parents[2]
TOWNS = ["Tarnholm", "Vinter", "Grauhafen"]


class Server:
    """A running server, and what it wrote."""

    def __init__(self, url: str, log: Path) -> None:
        self.url, self._log = url, log
        self.client: Any = get_sync_client(url=url)

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")


def passage(town: str, text: str = "") -> Document:
    return Document(
        text or f"{town} is a town in Norland. It was founded by Oskar Lind.",
        metadata={"title": town, "source": "notes"},
    )


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("langgraph_api")
    folder = tmp_path_factory.mktemp("studio")
    with BM25Index(folder / "index") as index:
        index.add([passage(town) for town in TOWNS])
    with BM25Index(folder / "pages") as pages:
        pages.add([passage(f"{town} on the web") for town in TOWNS])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "selfcorrect_rag.cli", "studio", "--no-browser"]
    command += ["--port", str(port), "--index", "index", "--web", "pages"]
    command += ["--evaluator", str(tiny_t5_path())]
    log = folder / "server.log"
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    with log.open("w") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield _ready(process, f"http://127.0.0.1:{port}", log)
    finally:
        process.terminate()
        process.wait(timeout=30)


def _ready(process: "subprocess.Popen[bytes]", url: str, log: Path) -> Server:
    for _ in range(300):
        if process.poll() is not None:
            break
        try:
            if httpx.get(f"{url}/ok").is_success and WARM in log.read_text(encoding="utf-8"):
                return Server(url, log)
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise RuntimeError(f"no server: {log.read_text(encoding='utf-8')[-4000:]}")
