"""Bulk runs of scripted questions: made, watched, killed, and read back."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FACTORY = "tests.bulk.scripted:make_graph"


def write_questions(folder: Path, names: Sequence[str], seconds: float = 0.0) -> Path:
    """Questions to the scripted graph, which writes its calls into ``folder / "calls"``."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = ({"question": f"{folder / 'calls'}|{seconds}|{name}", "n": name} for name in names)
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The rows of all parts."""
    found: list[dict[str, Any]] = []
    for path in sorted((out / "answers").iterdir()):
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            found += pq.read_table(path).to_pylist()
        else:
            found += map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return found


def names_of(out: Path) -> list[str]:
    """What was asked, of all rows, in order."""
    return sorted(row["question"].rpartition("|")[2] for row in rows_of(out))


def calls_of(folder: Path) -> list[tuple[int, str]]:
    """The calls of the scripted model: the process and the name of the question."""
    path = folder / "calls"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [(int(pid), name) for pid, name in (line.split() for line in lines)]


def finished_of(out: Path) -> set[str]:
    """The names whose rows are on the disk, gathered or not."""
    found = set()
    for path in [*out.glob("unfinished/*.jsonl"), *out.glob("answers/*.jsonl")]:
        text = path.read_text(encoding="utf-8")
        for line in text[: text.rfind("\n") + 1].splitlines():
            found.add(json.loads(line)["question"].rpartition("|")[2])
    return found


def command(questions: Path, out: Path, *options: str) -> list[str]:
    """The command line that asks the scripted graph."""
    batch = ["batch", str(questions), "--out", str(out), "--factory", FACTORY, "--keep", "n"]
    return [sys.executable, "-m", "selfcorrect_rag.cli", *batch, *options]


def start(arguments: Sequence[str]) -> "subprocess.Popen[str]":
    """Run a command as a process of its own group."""
    return subprocess.Popen(
        arguments,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until it holds.

    Raises:
        TimeoutError: it does not.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("it did not happen")
        time.sleep(0.02)


def kill(pid: int) -> None:
    """kill -9."""
    os.kill(pid, signal.SIGKILL)
