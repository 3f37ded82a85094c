"""Past runs in a SQLite file: found, marked, exported, bounded; several servers may share it."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from selfcorrect_rag.serving.config import BadOption

MOST_RUNS = 2_000
"""Runs without a mark that are kept; the oldest go first. Marked ones stay until they are
deleted."""
SHOWN = 100
"""Most runs of a list."""

State = Literal["done", "stopped", "failed"]
Mark = Literal["", "right", "wrong"]

_TABLE = """
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, asked REAL NOT NULL, question TEXT NOT NULL, graph TEXT NOT NULL,
    place TEXT NOT NULL, state TEXT NOT NULL, seconds REAL NOT NULL, answer TEXT NOT NULL,
    error TEXT NOT NULL, result TEXT NOT NULL, mark TEXT NOT NULL DEFAULT '',
    note TEXT NOT NULL DEFAULT '', answers TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX IF NOT EXISTS by_time ON runs (asked);
"""
_LIST = "id, asked, question, graph, place, state, seconds, answer, error, mark, note, answers"


@dataclass(frozen=True)
class Run:
    """A run that is over."""

    id: str
    asked: float
    """When, in seconds since 1970."""
    question: str
    graph: str
    """As settings name it, such as ``self_rag``."""
    place: str
    """The index, for people."""
    state: State
    seconds: float
    answer: str
    error: str = ""
    """Why it failed, on one line."""
    mark: Mark = ""
    note: str = ""
    answers: list[str] = field(default_factory=list)
    """Right answers that a person gave."""
    result: dict[str, Any] = field(default_factory=dict)
    """As ``ask --json`` prints it; empty in lists."""

    def __hash__(self) -> int:
        return hash(self.id)

    def as_json(self) -> dict[str, Any]:
        """The run without its result, as JSON values."""
        return {key: value for key, value in vars(self).items() if key != "result"}


class RunStore:
    """The runs in a file; every call opens it anew, so that threads and servers may share it.

    Raises:
        BadOption: the file cannot be written, or is no database of runs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._open() as file:
                file.execute("PRAGMA journal_mode=WAL")  # readers and a writer at a time
                file.executescript(_TABLE)
                file.execute(f"SELECT {_LIST}, result FROM runs LIMIT 1")
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

    def add(self, run: Run) -> None:
        """Keep a run, and drop the oldest unmarked ones beyond :data:`MOST_RUNS`."""
        row = {**vars(run), "answers": json.dumps(run.answers), "result": json.dumps(run.result)}
        names = ", ".join(row)
        values = ", ".join(f":{name}" for name in row)
        with self._open() as file:
            file.execute(f"INSERT OR REPLACE INTO runs ({names}) VALUES ({values})", row)
            file.execute(
                "DELETE FROM runs WHERE id IN (SELECT id FROM runs WHERE mark = '' "
                "ORDER BY asked DESC LIMIT -1 OFFSET ?)",
                (MOST_RUNS,),
            )

    def get(self, id: str) -> Run | None:
        """A run with its result; None where there is none."""
        with self._open() as file:
            row = file.execute(f"SELECT {_LIST}, result FROM runs WHERE id = ?", (id,)).fetchone()
        return None if row is None else _run(row)

    def find(
        self, text: str = "", graph: str = "", mark: str = "", limit: int = SHOWN
    ) -> list[Run]:
        """The newest runs, without their results.

        Args:
            text: words that question, answer or note must all have; upper and lower case of ASCII
                letters are the same.
            graph: of this graph alone.
            mark: ``right``, ``wrong``, or ``none`` for those without; empty: all.
            limit: most runs.
        """
        where, given = ["1"], list[Any]()
        for word in text.split()[:20]:
            quoted = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            where.append("(question || ' ' || answer || ' ' || note) LIKE ? ESCAPE '\\'")
            given.append(f"%{quoted}%")
        for name, value in (("graph", graph), ("mark", mark)):
            if value:
                where.append(f"{name} = ?")
                given.append("" if value == "none" else value)
        asks = f"SELECT {_LIST} FROM runs WHERE {' AND '.join(where)} ORDER BY asked DESC LIMIT ?"
        with self._open() as file:
            return [_run(row) for row in file.execute(asks, (*given, limit))]

    def count(self) -> int:
        """How many runs there are."""
        with self._open() as file:
            return int(file.execute("SELECT count(*) FROM runs").fetchone()[0])

    def mark(self, id: str, mark: Mark, note: str, answers: list[str]) -> bool:
        """Set a person's judgement of a run; False where there is no such run."""
        with self._open() as file:
            done = file.execute(
                "UPDATE runs SET mark = ?, note = ?, answers = ? WHERE id = ?",
                (mark, note, json.dumps(answers), id),
            )
            return done.rowcount > 0

    def delete(self, id: str) -> bool:
        """Delete a run; False where there is none."""
        with self._open() as file:
            return file.execute("DELETE FROM runs WHERE id = ?", (id,)).rowcount > 0

    def export(self) -> Iterator[str]:
        """The questions of marked runs as lines for ``selfcorrect-rag eval``, in the order in which
        they were asked.

        A question comes once, from the newest of its marked runs that says what is right: by the
        answers that a person gave, else by its own, which was called right. A question of which
        none says so is left out.
        """
        newest: dict[str, dict[str, Any]] = {}
        with self._open() as file:
            marked = file.execute(f"SELECT {_LIST} FROM runs WHERE mark != '' ORDER BY asked")
            runs = [_run(row) for row in marked]
        for run in runs:
            answers = run.answers or ([run.answer] if run.mark == "right" and run.answer else [])
            if answers:
                newest.pop(run.question, None)  # what is newer stands behind
                row = {"id": run.id, "question": run.question, "answers": answers}
                newest[run.question] = {
                    **row,
                    "note": run.note,
                    "mark": run.mark,
                    "graph": run.graph,
                }
        for row in newest.values():
            yield json.dumps(row, ensure_ascii=False) + "\n"


def _run(row: sqlite3.Row) -> Run:
    given = dict(row)
    given["answers"] = json.loads(given["answers"])
    given["result"] = json.loads(given.get("result", "{}"))
    return Run(**given)
