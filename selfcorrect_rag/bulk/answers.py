"""The folder of answers: what is finished is written at once, and gathered into parts.

    DIR/answers/part-00000.parquet   rows of the output, or .jsonl; whole or not there at all
    DIR/unfinished/*.jsonl           the journals of batches, a row the moment that it is finished
    DIR/settings.json, summary.json, lock

A part is written from journals, which are then deleted. A kill between the two leaves rows in both
places; they are one row, since they have one id.
"""

import json
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple

from selfcorrect_rag.bulk.rows import COLUMNS, arrow_schema
from selfcorrect_rag.errors import BadRun, require
from selfcorrect_rag.old_journal import (
    Journal,
    keep_settings,
    only_run,
    refuse_other_settings,
    write_rows,
)

Format = Literal["jsonl", "parquet"]
ROWS_PER_PART = 5_000
"""Rows that are gathered before a part is written, a batch more or less."""
_SETTINGS, _LOCK = "settings.json", "lock"
_URI = re.compile(r"\w{2,}:/")  # as a path spells it; a drive has one letter
_COUNTED = ("id", "error", "model_calls", "prompt_tokens", "generated_tokens")


class Summary(NamedTuple):
    """What is in a folder of answers."""

    rows: int = 0
    failed: int = 0
    """Rows with an error, of ``rows``."""
    model_calls: int = 0
    prompt_tokens: int = 0
    """Of the models that say so, as are those below."""
    generated_tokens: int = 0
    asked: int = 0
    """Rows that were finished by this run; the others were there before."""
    seconds: float = 0.0
    """Wall-clock time of this run."""


def journal_of(out: Path, ids: Sequence[str]) -> Path:
    """The journal of a batch, found again whoever does the batch anew."""
    name = sha256("\n".join(ids).encode()).hexdigest()[:32]
    return out / "unfinished" / f"{name}.jsonl"


class Answers:
    """The folder ``out``, for the one process that gathers; see :func:`opened_answers`."""

    def __init__(self, out: Path, form: Format) -> None:
        self.out, self._form = out, form
        self.done: set[int] = set()
        """The keys of rows in parts; see :func:`key`."""
        self._counts = dict.fromkeys(("rows", "failed", *_COUNTED[2:]), 0)
        self._next, self._waiting, self._before = 0, 0, 0
        self._taken: set[int] = set()
        """The keys of rows that are being asked, or in journals."""
        self._journals: dict[Path, None] = {}
        self._drops_failed = False
        self._lock = threading.Lock()

    def open(self, *, drop_failed: bool) -> None:
        """Read what is there; gather what a killed run left.

        Args:
            drop_failed: drop rows with an error, so that they are asked again.
        """
        (self.out / "answers").mkdir(exist_ok=True)
        (self.out / "unfinished").mkdir(exist_ok=True)
        for path in sorted((self.out / "answers").glob(f"part-*.{self._form}")):
            self._next = int(path.stem.removeprefix("part-")) + 1
            if drop_failed:
                self._drop_failed(path)
            if path.exists():
                for row in self._read(path, _COUNTED):
                    self._count(row)
        self._drops_failed = drop_failed
        self.gather_all()
        self._drops_failed, self._before = False, self._counts["rows"]

    def add(self, journal: Path, rows: int) -> None:
        """Take the journal of a finished batch; write a part when there are rows enough.

        Threads may call it.
        """
        with self._lock:
            self._journals[journal] = None
            self._waiting += rows
            if self._waiting >= ROWS_PER_PART:
                self._gather()

    def gather_all(self) -> None:
        """Write what all journals hold, also those of batches that were cut off."""
        self._journals, self._waiting = {}, 0  # all of them are found again
        for path in sorted((self.out / "unfinished").glob("*.jsonl")):
            self.add(path, path.read_bytes().count(b"\n"))
        self._gather()

    def summary(self, seconds: float = 0.0) -> Summary:
        """What is in the parts, after so many seconds."""
        asked = self._counts["rows"] - self._before
        return Summary(**self._counts, asked=asked, seconds=round(seconds, 3))

    def take(self, id: str) -> bool:
        """Whether the row ``id`` is still to be asked; from then on it is the caller's to ask.

        One thread may call it while others gather.
        """
        wanted = key(id)
        if wanted in self._taken or wanted in self.done:  # in this order: see _count
            return False
        self._taken.add(wanted)
        return True

    def _gather(self) -> None:
        rows: dict[int, dict[str, Any]] = {}
        for path in self._journals:
            for name, row in Journal(path).rows.items():
                is_dropped = self._drops_failed and row["error_type"] is not None
                if key(name) not in self.done and not is_dropped:
                    rows[key(name)] = {column: {"id": name, **row}[column] for column in COLUMNS}
        if rows:
            name = f"part-{self._next:05d}.{self._form}"
            self._write(self.out / "answers" / name, list(rows.values()))
            self._next += 1
            for row in rows.values():
                self._count(row)
        for path in self._journals:
            path.unlink(missing_ok=True)
        self._journals, self._waiting = {}, 0

    def _count(self, row: Mapping[str, Any]) -> None:
        self.done.add(key(row["id"]))
        self._taken.discard(key(row["id"]))
        self._counts["rows"] += 1
        self._counts["failed"] += row["error"] is not None
        for name in _COUNTED[2:]:
            self._counts[name] += row[name] or 0

    def _drop_failed(self, path: Path) -> None:
        rows = list(self._read(path, None))
        kept = [row for row in rows if row["error_type"] is None]
        if not kept:
            path.unlink()
        elif len(kept) < len(rows):
            self._write(path, kept)

    def _read(self, path: Path, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
        try:
            if self._form == "parquet":
                parquet = require("pyarrow.parquet", "parquet")
                yield from parquet.read_table(path, columns=columns and list(columns)).to_pylist()
                return
            with path.open("rb") as file:
                for row in map(json.loads, file):
                    yield {**row, "kept": json.dumps(row["kept"], ensure_ascii=False)}
        except (OSError, ValueError) as error:
            raise BadRun(f"{path} is no part of a bulk run ({error})") from error

    def _write(self, path: Path, rows: list[dict[str, Any]]) -> None:
        draft = path.with_name(f"{path.name}.draft")
        try:
            if self._form == "jsonl":
                write_rows(path, ({**row, "kept": json.loads(row["kept"])} for row in rows))
                return
            table = require("pyarrow", "parquet").Table.from_pylist(rows, schema=arrow_schema())
            require("pyarrow.parquet", "parquet").write_table(table, draft)
            os.replace(draft, path)
        except BaseException:
            draft.unlink(missing_ok=True)  # on a full disk it is in the way
            raise


def key(id: str) -> int:
    """64 bits of a row's id."""
    return int(id[:16], 16)


@contextmanager
def opened_answers(
    out: Path, form: Format, settings: Mapping[str, Any], *, drop_failed: bool = False
) -> Iterator[Answers]:
    """The folder ``out`` for this process alone, with all that was finished before.

    Raises:
        BadRun: it holds something else, or a run with other settings, or another run works in it.
        DiskFull: the disk is.
    """
    if _URI.match(str(out)):
        raise BadRun(f"{out} is no folder: rows are appended, which object stores cannot")
    check_folder(out, settings)
    with only_run(out):
        keep_settings(out, settings)
        answers = Answers(out, form)
        answers.open(drop_failed=drop_failed)
        yield answers


def check_folder(out: Path, settings: Mapping[str, Any]) -> None:
    """Do nothing if a run with these settings may write into ``out``.

    Raises:
        BadRun: it holds something else, or a run with other settings.
    """
    if out.exists() and not out.is_dir():
        raise BadRun(f"{out} is a file: give a folder")
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if names - {_LOCK, f"{_SETTINGS}.draft"} and _SETTINGS not in names:
        raise BadRun(f"{out} is not of this command's making: give another folder")
    refuse_other_settings(out, settings)
