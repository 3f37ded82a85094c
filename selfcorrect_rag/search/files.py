"""Finds files under paths, and opens them without following links out of those paths.

A folder may come from a stranger. A symbolic link that leads out of the given paths is reported,
and followed only on request. Files are opened folder by folder, so that a file replaced by a link
meanwhile is not followed either. Hard links cannot be told from files: they are read.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.search.index import is_index

KINDS = (".txt", ".md", ".html", ".htm", ".jsonl", ".json", ".pdf", ".docx", ".pptx", ".xlsx")
"""Suffixes that are read, each also with .gz."""

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINKS
# Opening a pipe must not block until somebody writes into it.
_FILE = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | _NO_LINKS


class UnreadableFile(SelfCorrectError, ValueError):
    """A file that gives no documents; the message is the reason, without the path."""


@dataclass(frozen=True)
class Problem:
    """A file or folder that could not be read, or only in part."""

    path: str
    reason: str
    partly: bool = False
    """Whether the file still counts as read."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a kind that is read."""

    path: Path
    """The path as found, with its links."""
    roots: tuple[Path, ...] | None
    """Resolved folders that it must lie in; None allows any."""

    @property
    def name(self) -> str:
        """Its source, see `source_name`."""
        return source_name(self.path)

    def size(self) -> int:
        """Size in bytes; 0 if it is gone."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def open(self) -> BinaryIO:
        """The file, opened for reading.

        Raises:
            UnreadableFile: it cannot be opened, is no regular file, or leads out of ``roots``.
        """
        try:
            descriptor = self._descriptor()
        except OSError as error:
            raise UnreadableFile(error.strerror or str(error)) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise UnreadableFile("not a regular file")
        return os.fdopen(descriptor, "rb")

    def _descriptor(self) -> int:
        if self.roots is None:
            return os.open(self.path, _FILE & ~_NO_LINKS)
        real = Path(os.path.realpath(self.path, strict=True))
        root = _root_of(real, self.roots)
        if root is None:
            raise UnreadableFile(_leads_out(real))
        return _open_beneath(root, real)


def find_files(
    paths: Iterable[str | Path], *, follow_links: bool = False
) -> Iterator[FoundFile | Problem]:
    """The readable kinds of files under ``paths``, each once and in a stable order.

    Folders are searched to the bottom, without hidden files and without indexes of this package.
    A link is followed where it leads to something under ``paths``; one that leads elsewhere is a
    `Problem`, once. Paths that are given themselves may be links. Files of other kinds are a
    `Problem` only where given themselves.

    Args:
        follow_links: Follow links wherever they lead.
    """
    seen: set[tuple[int, int]] = set()
    given = [Path(os.path.abspath(path)) for path in paths]
    roots = None if follow_links else tuple(Path(os.path.realpath(path)) for path in given)
    stack = given[::-1]
    while stack:
        path = stack.pop()
        try:
            status = path.stat()
            identity = status.st_dev, status.st_ino
            if identity in seen:  # a second name of the same thing, or a link in a circle
                continue
            is_folder = stat.S_ISDIR(status.st_mode)
            if not is_folder and kind_of(path.name) not in KINDS:
                if path in given:
                    kinds = ", ".join(KINDS)
                    yield Problem(source_name(path), f"not one of {kinds} (or .gz of them)")
                continue
            if roots is not None and path.is_symlink():
                real = Path(os.path.realpath(path))
                if _root_of(real, roots) is None:
                    yield Problem(source_name(path), _leads_out(real))
                    continue
            seen.add(identity)
            if not is_folder:
                yield FoundFile(path, roots)
            elif not is_index(path):
                entries = sorted(os.listdir(path), reverse=True)
                stack += [path / entry for entry in entries if not entry.startswith(".")]
        except OSError as error:
            if path in given or kind_of(path.name) in ("", *KINDS):
                yield Problem(source_name(path), error.strerror or str(error))


def source_name(path: Path) -> str:
    """The absolute path as text, also where the file system's bytes are no text."""
    return os.fsencode(os.path.abspath(path)).decode("utf-8", "backslashreplace")


def kind_of(name: str) -> str:
    """The ending that decides how a file is read, e.g. ".json" for ``a.JSON.gz``."""
    return Path(name.lower().removesuffix(".gz")).suffix


def _root_of(real: Path, roots: Iterable[Path]) -> Path | None:
    return next((root for root in roots if real.is_relative_to(root)), None)


def _leads_out(real: Path) -> str:
    return f"leads out of the folder, to {source_name(real)}: not read without --follow-links"


def _open_beneath(root: Path, real: Path) -> int:
    """Open ``real``, a path without links, and refuse links on the way down from ``root``."""
    # Windows has neither flag: there, only the earlier check for links protects.
    if real == root or not _NO_LINKS or os.open not in os.supports_dir_fd:
        return os.open(real, _FILE)
    *folders, name = real.relative_to(root).parts
    above = os.open(root, _FOLDER)
    try:
        for folder in folders:
            below = os.open(folder, _FOLDER, dir_fd=above)
            os.close(above)
            above = below
        return os.open(name, _FILE, dir_fd=above)
    finally:
        os.close(above)
