"""Recognises a full disk among the errors that it causes in other libraries."""

import errno
import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selfcorrect_rag.errors import DiskFull, SelfCorrectError

NEARLY_FULL = 32 * 2**20
"""Bytes. Chroma and torch do not always say why a write failed, and free what they had taken: a
write of theirs that fails for no known reason, with less than this free, failed for lack of
space."""

_SQLITE_CODE = re.compile(r"\(code: (\d+)\)")
_ERRNO = re.compile(r"\(os error (\d+)\)")
_SQLITE_FULL, _SQLITE_IO = 13, 10
_WRITERS = ("chromadb", "pyo3_runtime", "safetensors")
"""Modules of error classes; pyo3_runtime's is a panic in the Rust of Chroma or safetensors."""
_TORCH_WRITER = re.compile("inline_container|PytorchStreamWriter")


@contextmanager
def wrap_disk_full(folder: Path) -> Iterator[None]:
    """Raise errors that a full disk causes as `DiskFull`; all others pass unchanged."""
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
        if known or not _is_by_writer(error) or _free(folder) >= NEARLY_FULL:
            return None
    message = " ".join(str(error).split())
    return DiskFull(
        f"the disk of {folder} is full ({message}): free space and run the same command again; "
        "what is written stays"
    )


def error_codes(error: BaseException) -> tuple[int | None, int | None]:
    """SQLite's primary result code and the system's errno, from attributes or the message."""
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", None)
        return (None if code is None else code & 0xFF), None
    if isinstance(error, OSError) and error.errno is not None:
        return None, error.errno
    code, number = _SQLITE_CODE.search(str(error)), _ERRNO.search(str(error))
    return (int(code[1]) & 0xFF if code else None), (int(number[1]) if number else None)


def _is_by_writer(error: BaseException) -> bool:
    if isinstance(error, sqlite3.Error) or type(error).__module__.startswith(_WRITERS):
        return True
    return isinstance(error, RuntimeError) and _TORCH_WRITER.search(str(error)) is not None


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return NEARLY_FULL
