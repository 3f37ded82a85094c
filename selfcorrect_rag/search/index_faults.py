"""What goes wrong with an index's folder, by its cause: each has another remedy."""

import errno
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selfcorrect_rag.errors import SelfCorrectError

NEARLY_FULL = 32 * 2**20
"""Bytes. Chroma says neither why a write failed nor keeps what it had taken by then: a write that
fails for no other known reason, with less than this free, failed for lack of space."""

_FULL, _READ_ONLY, _BUSY, _DAMAGED = {13}, {3, 8, 23}, {5, 6}, {11, 26}
"""SQLite's result codes."""
_SAID_CODE = re.compile(r"\(code: (\d+)\)")
_SAID_ERRNO = re.compile(r"\(os error (\d+)\)")


class UnreadableIndex(SelfCorrectError, OSError):
    """A folder that is damaged, or otherwise does not open as an index."""


class DiskFull(SelfCorrectError, OSError):
    """No space is left for what is to be written; what was written before stays."""


class ReadOnlyIndex(SelfCorrectError, OSError):
    """An index that may not be written to."""


class IndexBusy(SelfCorrectError, RuntimeError):
    """Another process is writing to the index."""


@contextmanager
def named_faults(folder: Path, kind: type[BaseException] = BaseException) -> Iterator[None]:
    """Raise errors of this ``kind`` as what they say about the index in ``folder``."""
    try:
        yield
    except SelfCorrectError:
        raise
    except kind as error:
        # What Chroma's Rust panics with is no Exception, and cannot be imported.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise _named(folder, error) from error
        raise


def _named(folder: Path, error: BaseException) -> SelfCorrectError:
    code, number = _codes(error)
    said = " ".join(str(error).split())
    if code in _FULL or number in (errno.ENOSPC, errno.EDQUOT):
        return _disk_full(folder, said)
    if code in _READ_ONLY or number in (errno.EROFS, errno.EACCES, errno.EPERM):
        return ReadOnlyIndex(
            f"{folder} cannot be written to ({said}): make it writable, or index into a new folder"
        )
    if code in _BUSY:
        return IndexBusy(f"{folder} is being written to ({said}): try again later")
    if code not in _DAMAGED and _free(folder) < NEARLY_FULL:
        return _disk_full(folder, said)
    return UnreadableIndex(
        f"{folder} does not open as an index ({said}): it is damaged or something else; "
        "index into a new folder"
    )


def _disk_full(folder: Path, said: str) -> DiskFull:
    return DiskFull(
        f"the disk of {folder} is full ({said}): free space and run the same command again; "
        "what is written stays"
    )


def _codes(error: BaseException) -> tuple[int | None, int | None]:
    """SQLite's primary result code and the system's error number, carried or said."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        return (None if code is None else code & 0xFF), None
    if isinstance(error, OSError):
        return None, error.errno
    code, number = _SAID_CODE.search(str(error)), _SAID_ERRNO.search(str(error))
    return (int(code[1]) & 0xFF if code else None), (int(number[1]) if number else None)


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return NEARLY_FULL
