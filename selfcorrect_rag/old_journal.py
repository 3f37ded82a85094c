"""The journal that makes long runs resumable: rows by key, a lock, settings, fingerprints."""

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import BadRun, ModelNotFound, disk_full, wrap_disk_full

FAILURES = "failures.jsonl"
"""In a run's folder: what a model failed at, and why."""
_OPENING = b'{"key": "'


class Journal:
    """Rows by key in a JSONL file; each is appended as it comes and read back by the next run.

    Half a last line, which a kill may leave, is as if it had never been. May be shared by threads,
    and by one process at a time: see :func:`only_run`.
    """

    def __init__(self, path: Path) -> None:
        """Read ``path`` where it exists; nothing is written before the first row.

        Raises:
            BadRun: it cannot be read, or is another kind of file; where there is a line
                to blame, the message names it.
        """
        self.path = path
        self.rows: dict[str, dict[str, Any]] = {}
        """By key; of several rows with one key the last."""
        self._lock = threading.Lock()
        whole, self._torn_at = _whole_lines(path)
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
                is_ours = isinstance(row["key"], str)
            except (ValueError, KeyError, TypeError):
                is_ours = False
            if not is_ours:
                raise BadRun(f"{path}:{number}: no row of a run; write to another file")
            self.rows[row.pop("key")] = row

    def append(self, key: str, row: Mapping[str, Any]) -> None:
        """Write a row, so that it outlives this process."""
        line = _line({"key": key, **row})
        with self._lock:
            with self.path.open("ab") as file:
                if self._torn_at is not None:
                    file.truncate(self._torn_at)
                self._torn_at = file.seek(0, os.SEEK_END)  # until the line is whole
                file.write(line)
            self._torn_at = None
            self.rows[key] = dict(row)

    def keep(self, keys: Collection[str]) -> None:
        """Drop the rows of all other keys; a journal without rows has no file."""
        rows = {key: row for key, row in self.rows.items() if key in keys}
        write_rows(self.path, ({"key": key, **row} for key, row in rows.items()))
        self.rows, self._torn_at = rows, None
        if not self.rows:
            self.path.unlink()


def run_folder(out: Path) -> Path:
    """Where the run that writes the file ``out`` keeps its place."""
    return out.with_name(f"{out.name}.run")


@contextmanager
def only_run(folder: Path) -> Iterator[None]:
    """Keep ``folder``, which is made where there is none, to this process; a kill frees it.

    Raises:
        BadRun: another run works in it.
        DiskFull: the disk is, also while the run works.
    """
    with wrap_disk_full(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(folder / "lock", timeout=0)) as lock:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                if full := disk_full(folder, error):
                    raise full from error
                raise BadRun(f"another run works in {folder} ({error})") from error
            yield


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSONL file that is there whole or not at all."""
    draft = path.with_name(f"{path.name}.draft")
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft.open("wb") as file:
        file.writelines(map(_line, rows))
    os.replace(draft, path)


def refuse_foreign(out: Path, journal: str) -> None:
    """Do nothing if a run may write the file ``out``: it is not there, empty, or the run's own.

    Whose it is tells the journal in the run's folder, without which nothing was ever written.

    Raises:
        BadRun: ``out`` is a folder or somebody else's file.
    """
    if out.is_dir():
        raise BadRun(f"{out} is a folder: write to a file")
    if out.exists() and out.stat().st_size and not (run_folder(out) / journal).exists():
        raise BadRun(f"{out} is not of this command's making: write to another file")


def refuse_other_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Do nothing if ``folder`` holds a run with these settings (JSON values), or none.

    Raises:
        BadRun: it holds a run with others; the message names them.
    """
    file = folder / "settings.json"
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else settings
    others = [name for name in settings if kept.get(name) != settings[name]]
    if others:
        raise BadRun(
            f"{folder} holds a run with other settings ({', '.join(others)}): give another place"
        )


def keep_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Keep a run's settings in its folder; see :func:`refuse_other_settings`."""
    refuse_other_settings(folder, settings)
    write_rows(folder / "settings.json", [settings])


def newest_checkpoint(folder: Path) -> str | None:
    """The newest of the Trainer's checkpoints in ``folder`` that is whole; None before the first.

    A kill may leave one half written. The Trainer writes its own state last.
    """
    steps = {path: path.name.rpartition("-")[2] for path in folder.glob("checkpoint-*")}
    whole = [path for path, step in steps.items() if step.isdecimal() and _holds_state(path)]
    return str(max(whole, key=lambda path: int(steps[path]))) if whole else None


def _holds_state(checkpoint: Path) -> bool:
    try:
        json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def _whole_lines(path: Path) -> tuple[bytes, int | None]:
    """A file's whole lines, and where they end if half a row follows."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return b"", None
    except OSError as error:
        raise BadRun(f"cannot read {path}: {error}") from error
    end = text.rfind(b"\n") + 1
    torn = text[end:]
    if not _OPENING.startswith(torn[: len(_OPENING)]):  # somebody else's file, not to be cut
        raise BadRun(f"{path} ends in no row of a run; write to another file")
    return text[:end], end if torn else None


def _line(row: Mapping[str, Any]) -> bytes:
    # What no encoding can hold becomes the JSON escape that it was read from.
    return json.dumps(row, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


_WEIGHTS = ("*.safetensors", "*.bin")


def digest_of_weights(checkpoint: Path) -> str:
    """64 hexadecimal digits of a folder's weights: whole, sharded or an adapter's.

    Raises:
        ModelNotFound: there are none in the folder.
    """
    files = sorted(file for pattern in _WEIGHTS for file in checkpoint.glob(pattern))
    if not files:
        raise ModelNotFound(f"{checkpoint} holds no weights ({', '.join(_WEIGHTS)})")
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{content} {path.name}\n".encode())
    return digest.hexdigest()


def digest_of_ids(ids: Iterable[str]) -> str:
    """64 hexadecimal digits of what an index holds, by the ids of its passages in any order."""
    return hashlib.sha256("\n".join(sorted(ids)).encode()).hexdigest()
