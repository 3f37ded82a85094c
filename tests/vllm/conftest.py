"""The real engine: these tests run where vLLM is installed, by `make test-vllm`."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from integrations.langgraph_server.services import free_port
from langchain_core.documents import Document
from nano_training.world import World

from nano_training.questions import WorldQuestion, new_question
from selfcorrect_rag.demo import generator_path, load_generator
from selfcorrect_rag.models import (
    ReflectionLLM,
    TransformersReflectionLLM,
    VLLMReflectionLLM,
    VLLMServerReflectionLLM,
)

collect_ignore_glob = ["test_*.py"] if find_spec("vllm") is None else []
SERVE = Path(__file__).parents[2] / "integrations" / "vllm_server" / "serve.py"
SERVER_START = 180
"""Seconds that a server on two cores may take."""
HELLO = "### Instruction:\nRepeat: Hello\n\n### Response:\n"
"""To which the nano generator answers "Hello"."""


def documents(case: WorldQuestion, distractors: int = 2) -> list[Document]:
    """The case's gold passage among passages that mislead."""
    return case.documents(distractors)


@pytest.fixture(scope="session")
def cases() -> list[WorldQuestion]:
    world = World("vllm")
    return [new_question(world, 4) for _ in range(100)]


@pytest.fixture(scope="session")
def reference() -> TransformersReflectionLLM:
    return load_generator()


@pytest.fixture(scope="session")
def engine() -> Iterator[VLLMReflectionLLM]:
    with VLLMReflectionLLM(model=str(generator_path())) as llm:
        yield llm


class Server:
    """A vLLM server in processes of its own, on a port that stays the same."""

    def __init__(self, model: Path | None = None) -> None:
        self.port = free_port()
        self.url = f"http://localhost:{self.port}"
        self.model = model or generator_path()
        self.ready = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Run `serve.py` and wait for the line in which it says that all is well."""
        command = [sys.executable, str(SERVE), str(self.model), "--port", str(self.port)]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        for line in self._process.stdout:  # type: ignore[union-attr]
            if line.startswith("ready:"):
                self.ready = line.strip()
                break
        else:
            raise RuntimeError("serve.py ended without being ready")
        # Nobody reads its log from here on, and a full pipe would stop it.
        threading.Thread(target=self._process.stdout.read, daemon=True).start()  # type: ignore[union-attr]

    def kill(self) -> None:
        """End server and engine at once, as a crash would."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@pytest.fixture(scope="session")
def running() -> Iterator[Server]:
    server = Server()
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def served(running: Server) -> Iterator[VLLMServerReflectionLLM]:
    with VLLMServerReflectionLLM(base_url=running.url) as llm:
        yield llm


@pytest.fixture(params=["engine", "server"])
def backend(request: pytest.FixtureRequest) -> ReflectionLLM:
    """Each vLLM backend in turn."""
    name = {"engine": "engine", "server": "served"}[request.param]
    llm: ReflectionLLM = request.getfixturevalue(name)
    return llm


def unfinished(url: str) -> float:
    """Requests that the server is running or has waiting, by its own metrics."""
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    names = ("vllm:num_requests_running{", "vllm:num_requests_waiting{")
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(names))
