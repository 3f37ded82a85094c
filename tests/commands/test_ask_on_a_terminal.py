"""`selfcorrect-rag ask` as a person sees it: a real process on a pseudo-terminal."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.commands.terminals import COMMAND, OnTerminal

QUESTION = "Who discovered penicillin?"
SPINNER = "starting"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run, so that the demo index is made once."""
    return tmp_path_factory.mktemp("terminal")


def test_something_moves_at_once_and_the_time_is_the_time_waited(folder: Path) -> None:
    ask = OnTerminal("ask", QUESTION, "--explain-cost", cwd=folder)
    first = ask.until(SPINNER)
    assert ask.end() == 0
    waited = time.monotonic() - ask.started
    for step in ("opening the index", "loading the reader", "retrieve", "Alexander Fleming"):
        assert step in ask.shown
    assert first < waited / 2
    (seconds,) = re.findall(r"the reader: ([\d.]+) s", ask.shown)
    assert waited / 2 < float(seconds) <= waited
    plain = re.sub(r"\x1b\[[\d;?]*\w", "", ask.shown)
    assert re.search(r"start and load +[\d.]+", plain)
    (whole,) = re.findall(r"in all .* ([\d.]+)\s", plain)
    assert float(whole) == pytest.approx(float(seconds), abs=0.006)


@pytest.mark.parametrize("form", [[], ["--json"], ["--engine", "transformers"]])
def test_nothing_moves_in_a_pipe(folder: Path, form: list[str]) -> None:
    ran = subprocess.run(
        [*COMMAND, "ask", QUESTION, *form],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert "\x1b" not in ran.stdout + ran.stderr
    assert SPINNER not in ran.stdout + ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_json_on_a_terminal_is_json_alone(folder: Path) -> None:
    ask = OnTerminal("ask", QUESTION, "--json", cwd=folder)
    assert ask.end() == 0
    assert "\x1b" not in ask.shown


@pytest.mark.parametrize("at", [SPINNER, "opening the index", "loading the reader"])
def test_ctrl_c_is_one_line_at_any_moment(folder: Path, at: str) -> None:
    ask = OnTerminal("ask", QUESTION, cwd=folder)
    ask.until(at)
    ask.process.send_signal(signal.SIGINT)
    assert ask.end() == 130
    *_, last = ask.shown.rstrip().splitlines()
    assert last.endswith("selfcorrect-rag: stopped")
    assert "Traceback" not in ask.shown
    assert ask.shown.rindex("\x1b[?25h") > ask.shown.rindex("\x1b[?25l"), "the cursor is back"
