"""Past runs in a SQLite file, private to the user; several servers may share it."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from selfcorrect_rag.serving.config import BadOption

MAX_RUNS = 2_000
"""Runs that are kept; the oldest are deleted first."""
MAX_SHOWN = 100
"""Runs of a list."""
_TABLE = """
CREATE TABLE IF NOT EXISTS past_runs (
    id TEXT PRIMARY KEY, asked REAL NOT NULL, question TEXT NOT NULL, graph TEXT NOT NULL,
    source TEXT NOT NULL, settings TEXT NOT NULL, answer TEXT NOT NULL, error TEXT NOT NULL,
    result TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_time ON past_runs (asked);
"""
_COLUMNS = "id, asked, question, graph, source, settings, answer, error"


@dataclass(frozen=True)
class PastRun:
    """A run that is over."""

    id: str
    asked: float
    """When, in seconds since 1970."""
    question: str
    graph: str
    """As settings name it, such as ``self_rag``."""
    source: str
    """The name of the index."""
    settings: dict[str, Any]
    """The settings that were set."""
    answer: str
    error: str = ""
    """Why it failed or stopped, on one line."""
    result: dict[str, Any] = field(default_factory=dict)
    """As ``ask --json`` prints it; empty in lists."""


class RunStore:
    """The runs in a file; every call opens it anew, so that threads and servers may share it.

    Raises:
        BadOption: the file cannot be written, or is not a database.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            with self._open() as file:
                file.execute("PRAGMA journal_mode=WAL")  # readers beside a writer
                file.executescript(_TABLE)
        except (OSError, sqlite3.Error) as error:
            raise BadOption(f"--runs {path}: {error}") from error

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        file = sqlite3.connect(self.path, timeout=10)  # while another server writes
        file.row_factory = sqlite3.Row
        try:
            with file:
                yield file
        finally:
            file.close()

    def add(self, run: PastRun) -> None:
        """Add a run, and delete the oldest ones beyond :data:`MAX_RUNS`."""
        row = dict(vars(run).items())
        row |= {"settings": json.dumps(run.settings), "result": json.dumps(run.result)}
        names, values = ", ".join(row), ", ".join(f":{name}" for name in row)
        with self._open() as file:
            file.execute(f"INSERT OR REPLACE INTO past_runs ({names}) VALUES ({values})", row)
            file.execute(
                "DELETE FROM past_runs WHERE id IN "
                "(SELECT id FROM past_runs ORDER BY asked DESC LIMIT -1 OFFSET ?)",
                (MAX_RUNS,),
            )

    def get(self, id: str) -> PastRun | None:
        """Return a run with its result."""
        with self._open() as file:
            found = file.execute(f"SELECT {_COLUMNS}, result FROM past_runs WHERE id = ?", (id,))
            row = found.fetchone()
        return None if row is None else _run(row)

    def find(self, text: str = "", limit: int = MAX_SHOWN) -> list[PastRun]:
        """Return the newest runs whose question or answer has ``text``, without their results."""
        pattern = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        query = (
            f"SELECT {_COLUMNS} FROM past_runs WHERE (question || ' ' || answer) LIKE ? "
            "ESCAPE '\\' ORDER BY asked DESC LIMIT ?"
        )
        with self._open() as file:
            return [_run(row) for row in file.execute(query, (f"%{pattern}%", limit))]

    def delete(self, id: str) -> None:
        """Delete a run, if it exists."""
        with self._open() as file:
            file.execute("DELETE FROM past_runs WHERE id = ?", (id,))


def _run(row: sqlite3.Row) -> PastRun:
    given = dict(row)
    given["settings"] = json.loads(given["settings"])
    given["result"] = json.loads(given.get("result", "{}"))
    return PastRun(**given)
