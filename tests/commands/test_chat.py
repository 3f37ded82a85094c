"""`selfcorrect-rag chat`: a conversation on a terminal, and in a pipe."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.terminals import COMMAND, OnTerminal

PROMPT = "> "
SLOW = """
import asyncio
from langchain_core.language_models import FakeListChatModel

ASKED = ["discovered penicillin", "Pasteur discover", "Curie discover"]

class Model(FakeListChatModel):
    async def _agenerate(self, messages, *args, **kwargs):
        asked = max(ASKED, key=messages[-1].text.rfind)
        if asked == "Pasteur discover":
            print("waiting", flush=True)
            await asyncio.sleep(600)
        if asked == "Curie discover":
            raise ConnectionError("the model is down")
        return self._generate(messages)

    def _should_stream(self, **kwargs):
        return False

model = Model(responses=["Alexander Fleming"])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run, so that the demo index is made once."""
    path = tmp_path_factory.mktemp("chat")
    (path / "slow.py").write_text(SLOW, encoding="utf-8")
    return path


@pytest.fixture
def chat(folder: Path, request: pytest.FixtureRequest) -> Iterator[OnTerminal]:
    """A conversation that waits for its first question."""
    begun = OnTerminal("chat", *getattr(request, "param", ()), cwd=folder)
    begun.until(PROMPT)
    yield begun
    begun.process.kill()


@pytest.mark.parametrize("end", ["\n", "\x04"])
def test_a_follow_up_is_answered_with_its_sources(chat: OnTerminal, end: str) -> None:
    chat.type("Who discovered penicillin?\n")
    chat.until("[1] ")
    chat.until(PROMPT)
    assert "Alexander Fleming" in chat.shown
    chat.type("What did he discover?\n")
    chat.until("asked as: What did Alexander Fleming discover?")
    chat.until("penicillin [1]")
    chat.until(PROMPT)
    chat.type(end)
    assert chat.end() == 0


SLOW_MODEL = ["--graph", "crag", "--chat-model", "slow:model"]


@pytest.mark.parametrize("chat", [SLOW_MODEL], indirect=True)
def test_ctrl_c_stops_the_answer_and_a_failure_is_a_line(chat: OnTerminal) -> None:
    chat.type("What did Louis Pasteur discover?\n")
    chat.until("waiting")
    chat.started = time.monotonic()
    chat.process.send_signal(signal.SIGINT)
    assert chat.until(PROMPT) < 10
    assert "stopped" in chat.shown
    chat.type("What did Marie Curie discover?\n")
    chat.until("the model is down; ask again once it works\r\n")
    chat.until(PROMPT)
    chat.type("Who discovered penicillin?\n")
    chat.until("Alexander Fleming")
    chat.until(PROMPT)
    chat.type("\n")
    assert chat.end() == 0
    assert "Traceback" not in chat.shown


def test_ctrl_c_while_it_loads_ends_it(folder: Path) -> None:
    chat = OnTerminal("chat", cwd=folder)
    chat.until("loading the reader")
    chat.process.send_signal(signal.SIGINT)
    assert chat.end() == 130
    assert "Traceback" not in chat.shown


def test_lines_of_a_pipe_are_turns(folder: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, "chat"],
        cwd=folder,
        input=b"Who discovered penicillin?\nWhat did h\xffe discover?\n",
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "PYTHONIOENCODING": "utf-8:strict"},
    )
    first, second, _ = ran.stdout.decode().split("\n\n")
    assert "Alexander Fleming [1]" in first
    assert second
    assert PROMPT not in ran.stdout.decode()
