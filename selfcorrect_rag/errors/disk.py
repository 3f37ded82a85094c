"""A disk that is full, told from all the errors that follow from it."""

import errno
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selfcorrect_rag.errors import DiskFull, SelfCorrectError

NEARLY_FULL = 32 * 2**20
"""Bytes. Chroma and torch do not always say why a write failed, nor keep what they had taken by
then: what they write and fails for no known reason, with less than this free, failed for lack of
space."""

_SAID_CODE = re.compile(r"\(code: (\d+)\)")
_SAID_ERRNO = re.compile(r"\(os error (\d+)\)")
_SQLITE_FULL, _SQLITE_IO = 13, 10
_WRITERS = ("chromadb", "pyo3_runtime", "safetensors")
"""Modules of errors; the second is that of a panic in Chroma's or safetensors' Rust."""
_TORCH_WRITER = re.compile("inline_container|PytorchStreamWriter")


@contextmanager
def named_disk_full(folder: Path) -> Iterator[None]:
    """Raise what a full disk makes others raise as `DiskFull`; all else as it is."""
    try:
        yield
    except SelfCorrectError:
        raise
    except Exception as error:
        if found := disk_full(folder, error):
            raise found from error
        raise


def disk_full(folder: Path, error: BaseException) -> DiskFull | None:
    """The error to raise in place of ``error``, if ``folder`` is on a full disk."""
    code, number = error_codes(error)
    if code != _SQLITE_FULL and number not in (errno.ENOSPC, errno.EDQUOT):
        known = number is not None or code not in (None, _SQLITE_IO)
        if known or not _by_a_writer(error) or _free(folder) >= NEARLY_FULL:
            return None
    said = " ".join(str(error).split())
    return DiskFull(
        f"the disk of {folder} is full ({said}): free space and run the same command again; "
        "what is written stays"
    )


def error_codes(error: BaseException) -> tuple[int | None, int | None]:
    """SQLite's primary result code and the system's error number, carried or said."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        return (None if code is None else code & 0xFF), None
    if isinstance(error, OSError) and error.errno is not None:
        return None, error.errno
    said, number = _SAID_CODE.search(str(error)), _SAID_ERRNO.search(str(error))
    return (int(said[1]) & 0xFF if said else None), (int(number[1]) if number else None)


def _by_a_writer(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error) or type(error).__module__.startswith(_WRITERS):
        return True
    return isinstance(error, RuntimeError) and _TORCH_WRITER.search(str(error)) is not None


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return NEARLY_FULL
