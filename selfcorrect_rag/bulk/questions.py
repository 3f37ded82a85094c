"""Reads questions: JSONL, CSV and Parquet; files, folders and globs, here or in an object store.

Files are streamed: no more than a row, or a thousand of a Parquet file, is held at a time. A row
that cannot be read is a :class:`Line` that says why; a file that cannot is an error.
"""

import csv
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, cast

from selfcorrect_rag.bulk.question_files import BadQuestions, QuestionFile
from selfcorrect_rag.errors import SelfCorrectError, describe_error, require
from selfcorrect_rag.settings import MAX_CHARACTERS
from selfcorrect_rag.intake import fit

LONGEST_LINE = 16 * 2**20
"""Bytes of a line of JSONL, and characters of a field of CSV; more is a broken row."""


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


def check_columns(files: Sequence[QuestionFile], columns: Columns) -> None:
    """Do nothing if any row has the column that is asked, and any each that is kept.

    Raises:
        BadQuestions: none has, and the message names columns that there are; or a file cannot be
            read.
    """
    wanted = {columns.asked, *columns.keep}
    seen: dict[str, None] = {}
    for file in files:
        for names in _names(file):
            seen |= dict.fromkeys(names)
            wanted -= set(names)
            if not wanted:
                return
    missing = columns.asked if columns.asked in wanted else sorted(wanted)[0]
    there = ", ".join(list(seen)[:20]) or "none"
    raise BadQuestions(f"no row has the column {missing}; there are: {there}")


def read_questions(
    files: Iterable[QuestionFile], columns: Columns, run: str, take: Callable[[str], bool]
) -> Iterator[Line]:
    """The rows of files that nobody has taken yet, broken ones included.

    Args:
        files: see :func:`~selfcorrect_rag.bulk.question_files.find_files`.
        columns: what is read of them.
        run: what else ids are made of, such as a fingerprint of the run's settings.
        take: called with each row's id: whether it is to be asked, and has not been taken before.

    Raises:
        BadQuestions: a file cannot be read, or not to its end.
    """
    for file in files:
        for number, row in _rows(file, [columns.asked, *columns.keep]):
            line = _line(row, f"{file.name}:{number}", columns, run)
            if take(line.id):
                yield line


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
    if len(value) > MAX_CHARACTERS:
        raise _Broken(f"the question is longer than {MAX_CHARACTERS:,} characters")
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


@contextmanager
def _reading(file: QuestionFile) -> Iterator[None]:
    """Raise whatever a file cannot be read for as one error."""
    try:
        yield
    except SelfCorrectError:
        raise
    except _UNREADABLE as error:
        raise BadQuestions(f"{file.path} cannot be read ({describe_error(error)})") from error


_UNREADABLE = (OSError, EOFError, ValueError, NotImplementedError, zlib.error, csv.Error)
"""What files and streams raise; pyarrow's own errors are some of them."""


def _rows(file: QuestionFile, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """Numbers, from 1, and rows: mappings, or whatever else stands there."""
    with _reading(file), _open(file) as stream:
        if file.kind == ".parquet":
            table = require("pyarrow.parquet", "parquet").ParquetFile(stream)
            there = [name for name in dict.fromkeys(names) if name in table.schema_arrow.names]
            batches = table.iter_batches(1_000, columns=there)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
        else:
            read = _csv if file.kind == ".csv" else _jsonl
            yield from enumerate(read(stream), start=1)


def _names(file: QuestionFile) -> Iterator[Iterable[str]]:
    """The names of columns of each row, or of all rows at once where the file says them."""
    with _reading(file), _open(file) as stream:
        if file.kind == ".parquet":
            yield require("pyarrow.parquet", "parquet").ParquetFile(stream).schema_arrow.names
        elif file.kind == ".csv":
            yield csv.DictReader(_text(stream)).fieldnames or ()
        else:
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
    _ = rows.fieldnames  # an error in these is the file's, not that of a row
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


def _open(file: QuestionFile) -> BinaryIO:
    if not file.uri:
        opener: Callable[..., Any] = gzip.open if file.is_zipped else open
        return cast(BinaryIO, opener(file.path, "rb"))
    system, _ = require("pyarrow.fs", "parquet").FileSystem.from_uri(file.uri)
    if file.kind == ".parquet":  # is read from its end
        return cast(BinaryIO, system.open_input_file(file.path))
    compression = "gzip" if file.is_zipped else None
    return io.BufferedReader(system.open_input_stream(file.path, compression=compression))
