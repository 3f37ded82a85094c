"""The folder of an index: who may read it, and errors that say what to do."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from selfcorrect_rag.errors import SelfCorrectError, disk_full, error_codes

INDEX_FILE = "index.sqlite3"
"""The file by which a folder is known as an index."""
OTHER_VERSION = "{} was made by an earlier version: index again, into a new folder"


class NoIndex(SelfCorrectError, FileNotFoundError):
    """A folder holds no index, or one of an earlier version."""


class UnreadableIndex(SelfCorrectError, OSError):
    """An index is damaged or not readable, or its folder holds something else."""


class ReadOnlyIndex(SelfCorrectError, OSError):
    """An index may not be written to."""


class IndexBusy(SelfCorrectError, RuntimeError):
    """Another process is writing to the index."""


class EmbedderMismatch(SelfCorrectError, ValueError):
    """An index was made with other embeddings than it is opened with."""


def make_folder(path: Path) -> None:
    """Make an index's folder, or refuse one that holds something else."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    held = {entry.name for entry in path.iterdir()}
    if held & {"chroma.sqlite3", "bm25.sqlite3", "store.sqlite3"} and INDEX_FILE not in held:
        raise NoIndex(OTHER_VERSION.format(path))
    if held and INDEX_FILE not in held:
        raise UnreadableIndex(f"{path} holds other files: give the index a new or empty folder")


def make_private(folder: Path) -> None:
    """Let only its user read an index."""
    for path in folder.rglob("*"):
        with suppress(OSError):
            path.chmod(0o700 if path.is_dir() else 0o600)


@contextmanager
def index_errors(path: Path) -> Iterator[None]:
    """Raise what SQLite, Chroma and the disk raise as errors that say what to do."""
    try:
        yield
    except (SelfCorrectError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of Chroma's Rust is not an Exception
        code, _ = error_codes(error)
        reason, new = " ".join(str(error).split()), "or index into a new folder"
        if full := disk_full(path, error):
            raise full from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise IndexBusy(
                f"another process is writing to {path}: run again when it has finished"
            ) from error
        if isinstance(error, PermissionError) or code in (3, 8, 14, 23):  # SQLite's, of access
            if os.access(path, os.R_OK | os.X_OK):
                raise ReadOnlyIndex(
                    f"{path} cannot be written to ({reason}): make it writable, {new}"
                ) from error
            raise UnreadableIndex(f"you have no permission to read {path}") from error
        is_chroma = type(error).__module__.startswith(("chroma", "pyo3"))
        if is_chroma or isinstance(error, sqlite3.Error | OSError):
            raise UnreadableIndex(
                f"{path} does not open as an index ({reason}): repair it, {new}"
            ) from error
        raise
