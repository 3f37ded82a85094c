"""What goes wrong with an index's folder, by its cause: each has another remedy."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.errors.disk import disk_full, error_codes

# SQLite's primary result codes.
_READ_ONLY, _BUSY, _CANNOT_OPEN = {3, 8, 23}, {5, 6}, 14


class UnreadableIndex(SelfCorrectError, OSError):
    """A folder that is damaged, may not be read, or otherwise does not open as an index."""


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
            raise disk_full(folder, error) or _named(folder, error) from error
        raise


def _named(folder: Path, error: BaseException) -> SelfCorrectError:
    code, number = error_codes(error)
    said = " ".join(str(error).split())
    denied = code in _READ_ONLY or number in (errno.EROFS, errno.EACCES, errno.EPERM)
    if (denied or code == _CANNOT_OPEN) and (unreadable := _unreadable(folder)):
        return UnreadableIndex(
            f"{folder} cannot be opened ({said}): you have no permission to read {unreadable}"
        )
    if denied or (code == _CANNOT_OPEN and not os.access(folder, os.W_OK)):
        return ReadOnlyIndex(
            f"{folder} cannot be written to ({said}): make it writable, or index into a new folder"
        )
    if code in _BUSY:
        return IndexBusy(f"{folder} is being written to ({said}): try again later")
    return UnreadableIndex(
        f"{folder} does not open as an index ({said}): it is damaged or something else; "
        "index into a new folder"
    )


def _unreadable(folder: Path) -> Path | None:
    """The first of what leads to an index, and is in it, that this user may not read."""
    folder = folder.absolute()
    wanted = {
        **dict.fromkeys(reversed(folder.parents), os.X_OK),
        folder: os.R_OK | os.X_OK,
        **dict.fromkeys(folder.glob("*.sqlite3"), os.R_OK),
    }
    for path, mode in wanted.items():
        if os.path.exists(path) and not os.access(path, mode):
            return path
    return None
