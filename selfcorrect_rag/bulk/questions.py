"""Reads questions: JSONL, CSV and Parquet; files, folders and globs, here or in an object store.

Files are streamed: no more than a row, or a thousand of a Parquet file, is held at a time. A row
that cannot be read is a :class:`Line` that says why.
"""

import csv
import fnmatch
import glob
import gzip
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from selfcorrect_rag.errors import SelfCorrectError, require
from selfcorrect_rag.settings.base import LONGEST_TEXT
from selfcorrect_rag.state.intake import fit

SUFFIXES = (".jsonl", ".ndjson", ".csv", ".parquet", ".jsonl.gz", ".ndjson.gz", ".csv.gz")
LONGEST_LINE = 16 * 2**20
"""Bytes of a line of JSONL, and characters of a field of CSV; more is a broken row."""
_WILD = re.compile(r"[*?\[]")


class BadQuestions(SelfCorrectError, ValueError):
    """There are no questions, or no column of them; the message says where and what to do."""


class Columns(NamedTuple):
    """The columns that are read."""

    question: str = "question"
    messages: str = ""
    """A conversation that ends with the question, read in its place: a list of objects with
    ``role`` and ``content``, in CSV as JSON; empty where there is none."""
    keep: tuple[str, ...] = ()
    """Columns that the rows of the output have too."""

    @property
    def asked(self) -> str:
        """The column that holds what is asked."""
        return self.messages or self.question


class Line(NamedTuple):
    """A row of the input, as JSON values."""

    id: str
    """32 hexadecimal digits of what is asked, what is kept, and the run's settings."""
    asked: str
    """The graph's input as JSON; empty for a row that cannot be asked."""
    kept: str
    """The columns that are kept, as a JSON object."""
    error: str
    """Why it cannot be asked, and where it stands; empty for the others."""


def find_files(places: Iterable[str]) -> list[str]:
    """The files at ``places``: paths, folders, globs, and URIs such as ``s3://bucket/folder``.

    Raises:
        BadQuestions: nothing is there, or something of another kind.
        MissingExtra: a URI needs pyarrow.
    """
    found: dict[str, None] = {}
    for place in places:
        files = _remote(place) if "://" in place else _local(place)
        if not files:
            raise BadQuestions(f"no questions at {place}: give JSONL, CSV or Parquet files")
        found |= dict.fromkeys(files)
    return list(found)


def check_columns(files: Sequence[str], columns: Columns) -> None:
    """Do nothing if any row has the column that is asked, and any each that is kept.

    Raises:
        BadQuestions: none has; the message names columns that there are.
    """
    wanted = {columns.asked, *columns.keep}
    seen: dict[str, None] = {}
    for path in files:
        for names in _names(path):
            seen |= dict.fromkeys(names)
            wanted -= set(names)
            if not wanted:
                return
    missing = columns.asked if columns.asked in wanted else sorted(wanted)[0]
    there = ", ".join(list(seen)[:20]) or "none"
    raise BadQuestions(f"no row has the column {missing}; there are: {there}")


def read_questions(path: str, columns: Columns, run: str) -> Iterator[Line]:
    """The rows of a file, broken ones included.

    Args:
        path: one of :func:`find_files`.
        columns: what is read of them.
        run: what else ids are made of, such as a fingerprint of the run's settings.
    """
    for number, row in _rows(path, [columns.asked, *columns.keep]):
        yield _line(row, f"{_name(path)}:{number}", columns, run)


class _Broken(Exception):
    """Why a row cannot be asked."""


def _line(row: Any, place: str, columns: Columns, run: str) -> Line:
    kept = "{}"
    try:
        if isinstance(row, _Broken):
            raise row
        if not isinstance(row, Mapping):
            raise _Broken("no JSON object")
        values = {name: row.get(name) for name in columns.keep}
        kept = json.dumps(fit(values), ensure_ascii=False, default=str, sort_keys=True)
        asked, error = json.dumps(_asked(row, columns), ensure_ascii=False), ""
    except _Broken as why:
        asked, error = "", f"{place}: {why}"
    content = json.dumps([run, asked, kept, error]).encode()
    return Line(hashlib.sha256(content).hexdigest()[:32], asked, kept, error)


def _asked(row: Mapping[str, Any], columns: Columns) -> dict[str, Any]:
    value = row.get(columns.asked)
    if value is None:
        raise _Broken(f"no column {columns.asked}" if columns.asked not in row else "no question")
    if columns.messages:
        return {"messages": _messages(value)}
    if not isinstance(value, str):
        raise _Broken(f"{columns.asked} is no text")
    if not value.strip():
        raise _Broken("the question is empty")
    if len(value) > LONGEST_TEXT:
        raise _Broken(f"the question is longer than {LONGEST_TEXT:,} characters")
    return {"question": fit(value)}


def _messages(value: Any) -> list[dict[str, str]]:
    try:
        given = json.loads(value) if isinstance(value, str) else value
        messages = [{"role": str(m["role"]), "content": m["content"]} for m in given]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _Broken("the messages are no list of objects with role and content") from error
    if not messages or not all(isinstance(m["content"], str) for m in messages):
        raise _Broken("the messages are empty, or hold other things than text")
    if messages[-1]["role"] not in ("user", "human") or not messages[-1]["content"].strip():
        raise _Broken("the messages do not end with a question of the user's")
    return cast(list[dict[str, str]], fit(messages))


def _rows(path: str, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """Numbers, from 1, and rows: mappings, or whatever else stands there."""
    kind = _suffix(path).removesuffix(".gz")
    if kind == ".parquet":
        file = _parquet(path)
        there = [name for name in dict.fromkeys(names) if name in file.schema_arrow.names]
        batches = file.iter_batches(1_000, columns=there)
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
        return
    with _open(path) as stream:
        yield from enumerate(_csv(stream) if kind == ".csv" else _jsonl(stream), start=1)


def _names(path: str) -> Iterator[Iterable[str]]:
    """The names of columns of each row, or of all rows at once where the file says them."""
    kind = _suffix(path).removesuffix(".gz")
    if kind == ".parquet":
        yield _parquet(path).schema_arrow.names
    elif kind == ".csv":
        with _open(path) as stream:
            yield csv.DictReader(_text(stream)).fieldnames or ()
    else:
        with _open(path) as stream:
            yield from (row for row in _jsonl(stream) if isinstance(row, dict))


def _jsonl(stream: BinaryIO) -> Iterator[Any]:
    while line := stream.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            while (rest := stream.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                pass
            yield _Broken(f"a line longer than {LONGEST_LINE // 2**20} MiB")
        elif line.strip():
            try:
                yield json.loads(line.removeprefix(b"\xef\xbb\xbf"))
            except (ValueError, RecursionError):
                yield _Broken("no JSON")


def _csv(stream: BinaryIO) -> Iterator[Any]:
    csv.field_size_limit(LONGEST_LINE)
    rows = csv.DictReader(_text(stream))
    while True:
        try:
            row: dict[Any, Any] = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield _Broken(f"no row of CSV ({error})")
            continue
        yield _Broken("more fields than columns") if None in row else row


def _text(stream: BinaryIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")


def _suffix(path: str) -> str:
    name = path.partition("?")[0].lower() if "://" in path else path.lower()
    return next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _local(place: str) -> list[str]:
    path = Path(place)
    if path.is_dir():
        inside = (file for file in path.rglob("*") if file.is_file())
        hidden = re.compile(r"(^|/)[._]")
        return sorted(
            str(file)
            for file in inside
            if _suffix(file.name) and not hidden.search(file.relative_to(path).as_posix())
        )
    if path.exists():
        if not _suffix(path.name):
            raise BadQuestions(f"{place} is none of {', '.join(SUFFIXES)}")
        return [str(path)]
    if _WILD.search(place):
        return sorted(file for file in glob.glob(place, recursive=True) if _suffix(file))
    return []


def _remote(place: str) -> list[str]:
    import_fs = require("pyarrow.fs", "parquet")
    address, mark, query = place.partition("?") if not _WILD.search(place) else (place, "", "")
    wild = _WILD.search(address)
    base = address[: address.rfind("/", 0, wild.start())] if wild else address
    try:
        system, path = import_fs.FileSystem.from_uri(base + mark + query)
        info = system.get_file_info(path)
        if info.type == import_fs.FileType.File:
            found = [path]
        else:
            selector = import_fs.FileSelector(path, recursive=True, allow_not_found=True)
            files = system.get_file_info(selector)
            found = sorted(f.path for f in files if f.type == import_fs.FileType.File)
    except (OSError, ValueError) as error:
        raise BadQuestions(f"{place} cannot be read: {error}") from error
    uris = [base[: len(base) - len(path)] + file for file in found] if found else []
    kept = (uri for uri in uris if not wild or fnmatch.fnmatch(uri, address))
    return [uri + mark + query for uri in kept if _suffix(uri)]


def _open(path: str) -> BinaryIO:
    if "://" not in path:
        opener: Callable[..., Any] = gzip.open if path.lower().endswith(".gz") else open
        return cast(BinaryIO, opener(path, "rb"))
    system, inside = require("pyarrow.fs", "parquet").FileSystem.from_uri(path)
    compression = "gzip" if _suffix(path).endswith(".gz") else None
    return io.BufferedReader(system.open_input_stream(inside, compression=compression))


def _parquet(path: str) -> Any:
    parquet = require("pyarrow.parquet", "parquet")
    try:
        if "://" not in path:
            return parquet.ParquetFile(path)
        system, inside = require("pyarrow.fs", "parquet").FileSystem.from_uri(path)
        return parquet.ParquetFile(system.open_input_file(inside))
    except (OSError, ValueError) as error:
        raise BadQuestions(f"{path} is no Parquet file: {error}") from error
