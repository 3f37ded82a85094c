"""Rows of files: those that users give, and the journal that makes long runs resumable.

A run has a folder: ``settings.json``, a lock, and one or more journals (JSONL). Finished rows are
appended and survive a kill; results are written beside their place and then moved there.
"""

import csv
import gzip
import hashlib
import io
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import BadRows, BadRun, safe_message

MAX_FILE, MAX_CELL = 2**31, 2**24
"""Bytes of a file after decompression, and characters of one cell of a table."""
SETTINGS, LOCK = "settings.json", "lock"
_START = b'{"key": "'


def read_rows(
    path: Path, skipped: list[str] | None = None
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows of a file, each with its line (in a JSON list its place).

    Files are UTF-8, gzipped if their name ends in ``.gz``: JSON lines; a JSON list; a JSON object
    with the list under ``data`` (ALCE), or with rows by id; CSV and TSV with named columns. The
    first invalid row raises `BadRows`, or ``skipped`` receives place and reason of each.
    """
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = file.read(MAX_FILE + 1).decode("utf-8-sig")
        if len(text) > MAX_FILE:
            raise ValueError(f"it is longer than {MAX_FILE:,} bytes")
        is_table = {".csv", ".tsv"} & {*path.suffixes}
        rows = list(_table_rows(text, path.suffixes) if is_table else _json_rows(text))
    except (OSError, EOFError, ValueError, RecursionError, csv.Error, zlib.error) as error:
        reason = f"need JSON lines or CSV in UTF-8; {safe_message(error)}"
        raise BadRows(f"cannot read {path}: {reason}") from error
    if not rows:
        raise BadRows(f"{path} holds no rows")
    for number, row in rows:
        if isinstance(row, Mapping):
            yield number, row
            continue
        reason = str(row) if isinstance(row, ValueError) else "not a JSON object"
        if skipped is None:
            raise BadRows(f"{path}:{number}: {reason}")
        skipped.append(f"{path}:{number}: {reason}")


def _json_rows(text: str) -> Iterator[tuple[int, object]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        if text.lstrip().startswith("["):
            raise
        for number, line in enumerate(text.split("\n"), start=1):  # JSON may hold U+2028
            try:
                if line.strip():
                    yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, ValueError(f"not JSON ({safe_message(error)})")
        return
    if isinstance(rows, Mapping) and isinstance(rows.get("data"), list):
        rows = rows["data"]
    elif isinstance(rows, Mapping) and all(isinstance(row, Mapping) for row in rows.values()):
        rows = [{"id": key, **row} for key, row in rows.items()]
    yield from enumerate(rows if isinstance(rows, list) else [rows], start=1)


def _table_rows(text: str, suffixes: Sequence[str]) -> Iterator[tuple[int, object]]:
    csv.field_size_limit(MAX_CELL)  # Python's own, 128 KiB, is less than ten passages
    delimiter = "\t" if ".tsv" in suffixes else ","
    table = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    for row in table:
        yield table.line_num, ValueError("more cells than columns") if None in row else row


class Journal:
    """Rows by key in an append-only JSONL file; a torn last line, left by a kill, is ignored.

    Safe to share between threads; processes must hold the run (:func:`open_run`).
    """

    def __init__(self, path: Path) -> None:
        """Read ``path`` if it exists; `BadRun` names the line if it is another kind of file."""
        self.path, self._lock = path, threading.Lock()
        self.rows: dict[str, dict[str, Any]] = {}
        """The rows by key; the last one of a key counts."""
        try:
            text = path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise BadRun(f"cannot read {path}: {error}") from error
        self._end = text.rfind(b"\n") + 1
        torn = text[self._end :]
        if not _START.startswith(torn[: len(_START)]):  # a foreign file must not be cut
            raise BadRun(f"the last line of {path} is not a journal row; use another file")
        for number, line in enumerate(text[: self._end].splitlines(), start=1):
            try:
                row = json.loads(line)
                self.rows[row.pop("key")[:]] = row
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise BadRun(f"{path}:{number}: not a journal row; use another file") from error

    def append(self, key: str, row: Mapping[str, Any]) -> None:
        """Write a row; when this returns, the row is on the disk."""
        line = _line({"key": key, **row})
        with self._lock, self.path.open("ab") as file:
            file.truncate(self._end)  # drops what an interrupted write has left
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
            self._end += len(line)
            self.rows[key] = dict(row)


def run_folder(out: Path) -> Path:
    """The folder of the run that writes the file ``out``."""
    return out.with_name(f"{out.name}.run")


@contextmanager
def open_run(folder: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Lock ``folder`` for this process and store the run's settings in it; a kill frees the lock.

    ``settings`` are the JSON values that decide the rows. `BadRun` if another process works there,
    and as :func:`check_run`.
    """
    check_run(folder, settings)
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(folder / LOCK, timeout=0)) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            reason = f"another run is writing to it, wait for it to end ({error})"
            raise BadRun(f"cannot lock {folder}: {reason}") from error
        check_run(folder, settings)  # another run may have written since
        write_rows(folder / SETTINGS, [settings])
        yield


def check_run(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raise BadRun if ``folder`` is a file, holds foreign files, or a run with other settings."""
    if folder.exists() and not folder.is_dir():
        raise BadRun(f"{folder} is a file; give a folder")
    inside = list(folder.iterdir()) if folder.is_dir() else []
    names = {path.name for path in inside if not path.is_dir() or any(path.iterdir())}
    if SETTINGS not in names and names - {LOCK, f"{LOCK}-journal", f"{SETTINGS}.draft"}:
        raise BadRun(f"{folder} was not made by this command; give another folder")
    if SETTINGS not in names:
        return
    try:
        stored = dict(json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise BadRun(f"cannot read {folder / SETTINGS}: {error}") from error
    given = json.loads(_line(settings))
    names = {name for name in {*given, *stored} if stored.get(name) != given.get(name)}
    if names:
        other = ", ".join(sorted(names))
        raise BadRun(f"{folder} holds a run with other settings ({other}); give another place")


def refuse_foreign(out: Path, journal: str) -> None:
    """Raise BadRun if the file ``out`` is a folder or of another origin: it is neither missing nor
    empty, and the run beside it lacks its ``journal``."""
    if out.is_dir():
        raise BadRun(f"{out} is a folder; give a file")
    if out.exists() and out.stat().st_size and not (run_folder(out) / journal).exists():
        raise BadRun(f"{out} was not made by this command; give another file")


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yield a draft beside ``path`` to write to; move it to ``path``, or delete it on an error."""
    draft = path.with_name(f"{path.name}.draft")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSONL file as a whole or not at all."""
    with replace_file(path) as draft, draft.open("wb") as file:
        file.writelines(map(_line, rows))


def digest(values: Iterable[object]) -> str:
    """32 hexadecimal digits of texts in order, or of the ``repr`` of other values."""
    found = hashlib.sha256()
    for value in values:
        text = value if isinstance(value, str) else repr(value)
        found.update(text.encode(errors="surrogatepass") + b"\n")
    return found.hexdigest()[:32]


def _line(row: Mapping[str, Any]) -> bytes:
    # A lone surrogate becomes the JSON escape that it was read from.
    return json.dumps(row, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"
