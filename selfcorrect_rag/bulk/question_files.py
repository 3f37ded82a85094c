"""Finds files of questions: paths, folders, globs, and URIs of what pyarrow reads."""

import glob
import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from selfcorrect_rag.errors import MASK, SelfCorrectError, redact, require, safe_message

SUFFIXES = (".jsonl", ".ndjson", ".csv", ".parquet", ".jsonl.gz", ".ndjson.gz", ".csv.gz")
_WILD = re.compile(r"[*?\[]")
_WILD_URI = re.compile(r"[*\[]")
"""Of a URI, where ? begins the query."""


class BadQuestions(SelfCorrectError, ValueError):
    """There are no questions, or no column of them, or they cannot be read; the message says where
    and what to do."""


class QuestionFile(NamedTuple):
    """A file of questions, here or in an object store."""

    path: str
    """On this machine, or within the file system of ``uri``."""
    uri: str = ""
    """Of the place that it was found at, which opens the file system and may hold secrets; empty
    for a file of this machine."""

    @property
    def name(self) -> str:
        """Its own name, without folders."""
        return Path(self.path).name

    @property
    def kind(self) -> str:
        """One of :data:`SUFFIXES`, without ``.gz``."""
        return _suffix(self.path).removesuffix(".gz")

    @property
    def is_zipped(self) -> bool:
        """Whether it is compressed by gzip."""
        return _suffix(self.path).endswith(".gz")

    @property
    def identity(self) -> tuple[str, str]:
        """The same for two spellings of one file."""
        store = urlsplit(self.uri)
        if store.scheme in ("", "file"):
            return "", os.path.realpath(self.path)
        return f"{store.scheme}://{store.netloc}?{store.query}", self.path


def find_files(places: Iterable[str]) -> list[QuestionFile]:
    """The files at ``places``: paths, folders, globs, and URIs such as ``s3://bucket/folder``.

    Each file is there once, however it is spelled. In folders and globs, what begins with a dot or
    an underscore is left out, and so is what such folders hold, unless the glob names it.

    Raises:
        BadQuestions: nothing is there, or something of another kind.
        MissingExtra: a URI needs pyarrow.
    """
    found: dict[tuple[str, str], QuestionFile] = {}
    for place in places:
        files = _remote(place) if "://" in place else _local(place)
        if not files:
            raise BadQuestions(f"no questions at {_shown(place)}: give JSONL, CSV or Parquet files")
        for file in files:
            found.setdefault(file.identity, file)
    return list(found.values())


def _local(place: str) -> list[QuestionFile]:
    path = Path(place)
    if path.is_file() and not _suffix(place):
        raise BadQuestions(f"{place} is none of {', '.join(SUFFIXES)}")
    if path.is_file():
        return [QuestionFile(place)]
    if path.is_dir():
        base, pattern, inside = path, ["**"], [str(file) for file in path.rglob("*")]
    else:
        fixed = next((i for i, part in enumerate(path.parts) if _WILD.search(part)), None)
        base, pattern = Path(*path.parts[:fixed]), list(path.parts[fixed:])
        inside = glob.glob(place, recursive=True)
    return [
        QuestionFile(file)
        for file in sorted(inside)
        if _is_meant(Path(file).relative_to(base).parts, pattern) and Path(file).is_file()
    ]


def _remote(place: str) -> list[QuestionFile]:
    files = require("pyarrow.fs", "parquet")
    address, mark, query = place.partition("?")
    base, pattern = address, ["**"]
    if wild := _WILD_URI.search(address):
        end = address.rfind("/", 0, wild.start()) + 1
        base, pattern = address[:end], [unquote(part) for part in address[end:].split("/") if part]
    uri = base + mark + query
    try:
        system, path = files.FileSystem.from_uri(uri)
        info = system.get_file_info(path)
        if info.type == files.FileType.File:
            return [QuestionFile(path, uri)] if _suffix(path) else []
        selector = files.FileSelector(path, recursive=True, allow_not_found=True)
        inside = system.get_file_info(selector)
    except (OSError, ValueError) as error:
        said = str(error).replace(query, MASK) if query else error
        raise BadQuestions(f"{_shown(place)} cannot be read ({safe_message(said)})") from error
    return [
        QuestionFile(file, uri)
        for file in sorted(each.path for each in inside if each.type == files.FileType.File)
        if _is_meant(file.removeprefix(path).strip("/").split("/"), pattern)
    ]


def _is_meant(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a path below a folder is a file of questions that ``pattern`` means."""
    return bool(parts and _suffix(parts[-1]) and _fits(parts, pattern))


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    """As :mod:`glob` has it, where ``**`` is any number of folders, for underscores as for dots."""
    if not pattern:
        return not parts
    first, rest = pattern[0], pattern[1:]
    if first == "**" and _fits(parts, rest):
        return True
    if not parts or (parts[0][0] in "._" and parts[0][0] != first[0]):
        return False
    if first == "**":
        return _fits(parts[1:], pattern)
    return fnmatchcase(parts[0], first) and _fits(parts[1:], rest)


def _suffix(path: str) -> str:
    return next((suffix for suffix in SUFFIXES if path.lower().endswith(suffix)), "")


def _shown(place: str) -> str:
    """A place without the secrets that a URI may hold."""
    return redact(place.partition("?")[0]) if "://" in place else place
