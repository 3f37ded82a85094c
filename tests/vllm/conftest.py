"""The real vLLM: these tests run in its environment, by `make test-vllm`."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.models import VLLMReflectionLLM

# vLLM's CPU build: engine and graph need a core each, and compiling takes longer than it saves.
os.environ.update(OMP_NUM_THREADS="1", TORCHDYNAMO_DISABLE="1")
CPU: dict[str, Any] = {
    "dtype": "float32",
    "block_size": 32,
    "kv_cache_memory_bytes": 2 << 30,
    "enforce_eager": True,
}
"""Options, as by default it takes all memory, and its blocks are longer than shared prefixes."""

collect_ignore_glob = ["test_*.py"] if find_spec("vllm") is None else []
ROOT = Path(__file__).parents[2]
SERVE = ROOT / "integrations" / "vllm_server" / "serve.py"


class Server:
    """A vLLM server in processes of its own, on a port that stays the same."""

    def __init__(self, model: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url, self.model = f"http://localhost:{self.port}", model
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Run serve.py and wait for its line that begins with "ready:"."""
        command = [sys.executable, str(SERVE), str(self.model), "--port", str(self.port)]
        for name, value in CPU.items():
            command += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        if not any(line.startswith("ready:") for line in self._process.stdout):
            raise RuntimeError("serve.py ended without being ready")
        # Nobody reads its log from here on, and a full pipe would stop it.
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def kill(self) -> None:
        """End server and engine at once, as a crash would."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


@pytest.fixture(scope="session")
def engine(checkpoint: Path) -> Iterator[VLLMReflectionLLM]:
    with VLLMReflectionLLM(model=str(checkpoint), engine=CPU) as llm:
        yield llm


@pytest.fixture(scope="session")
def running(checkpoint: Path) -> Iterator[Server]:
    server = Server(checkpoint)
    server.start()
    yield server
    server.kill()
