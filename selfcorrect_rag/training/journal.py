"""What a long run leaves behind as it goes, so that it can be killed and begun again."""

import dataclasses
import json
import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import BadTrainingData


class Journal:
    """Rows by key in a JSONL file; each is appended as it comes and read back by the next run.

    A line that a kill has torn is as if it had never been. May be shared by threads.
    """

    def __init__(self, path: Path) -> None:
        """Read ``path`` where it exists; nothing is written before the first row."""
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        """By key; of several rows with one key the last."""
        self._lock = threading.Lock()
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        self._torn = bool(text) and not text.endswith("\n")
        for line in text.split("\n"):
            try:
                row = json.loads(line)
                self.rows[row.pop("key")] = row
            except (ValueError, KeyError, TypeError, AttributeError):
                continue

    def append(self, key: str, row: Mapping[str, Any]) -> None:
        """Write a row, so that it outlives this process."""
        line = json.dumps({"key": key, **row}) + "\n"
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write("\n" * self._torn + line)
            self._torn = False
            self.rows[key] = dict(row)

    def keep(self, keys: Collection[str]) -> None:
        """Drop the rows of all other keys; a journal without rows has no file."""
        self.rows = {key: row for key, row in self.rows.items() if key in keys}
        if self.rows:
            write_rows(self.path, ({"key": key, **row} for key, row in self.rows.items()))
        else:
            self.path.unlink(missing_ok=True)
        self._torn = False


@contextmanager
def only_run(folder: Path) -> Iterator[None]:
    """Keep ``folder``, which is made where there is none, to this process; a kill frees it.

    Raises:
        BadTrainingData: another run works in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / "lock", timeout=0)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise BadTrainingData(f"another run works in {folder} ({error})") from error
        yield


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSONL file that is there whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    # What no encoding can hold becomes the JSON escape that it was read from.
    with draft.open("w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    os.replace(draft, path)


def same_settings(folder: Path, settings: Any) -> None:
    """Keep a run's settings, a dataclass, in its folder; refuse to go on with others.

    Raises:
        BadTrainingData: the folder holds a run with other settings.
    """
    file, given = folder / "settings.json", dataclasses.asdict(settings)
    if not file.exists():
        write_rows(file, [given])
        return
    kept = json.loads(file.read_text(encoding="utf-8"))
    others = [name for name in given if kept.get(name) != given[name]]
    if others:
        raise BadTrainingData(
            f"{folder} holds a run with other settings ({', '.join(others)}): give another place"
        )
