"""Find the files under paths, without following links out of them."""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from selfcorrect_rag.search.folder import INDEX_FILE


@dataclass(frozen=True)
class Problem:
    """A file or folder that could not be read, or only in part."""

    path: str
    reason: str
    partly: bool = False
    """Whether the file still counts as read."""


def find_files(
    paths: Iterable[str | Path], *, follow_links: bool = False
) -> Iterator[Path | Problem]:
    """Yield the files under ``paths``, each once and in a stable order, and what is not read.

    Folders are searched to the bottom, without names that begin with a dot and without indexes. A
    symbolic link that leads out of ``paths`` is a `Problem` unless ``follow_links``; paths that are
    given themselves may be links. Hard links cannot be told from files.
    """
    given = [Path(os.path.abspath(path)) for path in paths]
    roots = [Path(os.path.realpath(path)) for path in given]
    seen: set[tuple[int, int]] = set()
    stack = given[::-1]
    while stack:
        path = stack.pop()
        try:
            status = path.stat()
            if (status.st_dev, status.st_ino) in seen:  # a second name, or a link in a circle
                continue
            real = Path(os.path.realpath(path))
            if not (follow_links or any(real.is_relative_to(root) for root in roots)):
                reason = f"leads out of the folder, to {real}: not read without --follow-links"
                yield Problem(source_name(path), reason)
                continue
            seen.add((status.st_dev, status.st_ino))
            if stat.S_ISDIR(status.st_mode):
                if not (path / INDEX_FILE).exists():
                    entries = sorted(os.listdir(path), reverse=True)
                    stack += [path / entry for entry in entries if not entry.startswith(".")]
            elif stat.S_ISREG(status.st_mode):
                yield path
            else:
                yield Problem(source_name(path), "not a regular file")
        except OSError as error:
            yield Problem(source_name(path), error.strerror or str(error))


def source_name(path: Path) -> str:
    """Return the absolute path as text, even if the file system's bytes are not text."""
    return os.fsencode(os.path.abspath(path)).decode("utf-8", "backslashreplace")
