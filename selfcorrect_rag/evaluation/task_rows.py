"""Reads the rows of a file of questions one after the other: JSON lines, a JSON list, CSV, TSV.

Files are untrusted: memory holds one row, time is linear in the file, and one broken row costs
only itself.
"""

import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from selfcorrect_rag.errors import BadTask, one_line, safe_message

MAX_ROW = 2**24
"""Most characters of one line, of one row of a JSON list, and of one cell of a table."""
_BLOCK = 2**16
_FOREIGN = {
    b"PAR1": "is Parquet: write it as JSON lines (pandas: to_json(orient='records', lines=True))",
    b"PK\x03\x04": "is a zip archive or a spreadsheet: unpack it, or save it as CSV",
    b"\xff\xfe": "is UTF-16: save it as UTF-8",
    b"\xfe\xff": "is UTF-16: save it as UTF-8",
    b"%PDF": "is a PDF: rows of questions are JSON, CSV or TSV",
}
"""What files of other kinds begin with, and what to do about it."""
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
"""What ``surrogateescape`` decodes a byte to that is not UTF-8."""


class BadRow(ValueError):
    """A row that is no question; the message says why."""


class Row(NamedTuple):
    """A row of a file."""

    line: int
    """That it begins on, from 1."""
    value: Any
    """As JSON; None where there is a fault."""
    fault: str = ""
    """Why it could not be read."""


def file_rows(path: Path) -> Iterator[Row]:
    """The rows of a file, plain or gzipped, in UTF-8 with or without a byte order mark.

    - JSON lines: one row a line; blank lines are none.
    - A JSON list of rows, or a mapping of ids to rows, which get the field ``id``.
    - ``.csv`` and ``.tsv``: the first line names the columns. The delimiter of a ``.csv`` is the
      comma, the semicolon or the tab, whichever its first line has most of.

    An empty file and what cannot be decompressed give a row with a fault.

    Raises:
        BadTask: there is no such file, it cannot be opened, or it is of another kind.
    """
    with _opened(path) as text:
        lines = _Lines(text)
        try:
            empty = True
            for row in _rows(path, lines):
                empty = False
                yield row
            if empty:
                yield Row(1, None, "has no rows")
        except (OSError, EOFError, zlib.error) as error:
            yield Row(lines.number, None, f"cannot be read from here on ({safe_message(error)})")


@contextmanager
def _opened(path: Path) -> Iterator[TextIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise BadTask(f"cannot read {path}: {error.strerror or error}") from error
    with file:
        zipped = file.peek(2)[:2] == b"\x1f\x8b"
        content = io.BufferedReader(gzip.GzipFile(fileobj=file)) if zipped else file
        try:
            start = content.peek(4)
        except (OSError, EOFError, zlib.error) as error:
            raise BadTask(f"cannot read {path}: {safe_message(error)}") from error
        for signature, reason in _FOREIGN.items():
            if start.startswith(signature):
                raise BadTask(f"{path} {reason}")
        yield io.TextIOWrapper(content, "utf-8-sig", "surrogateescape", newline="\n")


def _rows(path: Path, lines: "_Lines") -> Iterator[Row]:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if ".tsv" in suffixes or ".csv" in suffixes:
        return _table_rows(path, lines, "\t" if ".tsv" in suffixes else "")
    start = lines.peek()
    if start[:1] == "[":
        return _json_elements(lines)
    if start[:1] == "{" and ".jsonl" not in suffixes and _is_mapping(start):
        return _json_elements(lines)
    return _json_lines(lines)


def _is_mapping(first_line: str) -> bool:
    """Whether a file that begins with this line maps ids to rows, rather than being JSON lines."""
    try:
        value = json.loads(first_line)
    except (ValueError, RecursionError):
        return True  # over several lines
    return bool(value) and all(isinstance(row, dict) for row in value.values())


class _Lines(Iterator[str]):
    """The lines of a text; one that is too long raises `BadRow`, and the next is read after it."""

    def __init__(self, text: TextIO) -> None:
        self.number = 0
        """Of the last line, from 1."""
        self._text = text
        self._ahead: str | None = None

    def peek(self) -> str:
        """The first line that is not blank, from its first letter; it is still to be read."""
        while (line := self._read()) and not line.strip():
            self.number += 1
        self._ahead = line
        return line.lstrip()

    def blocks(self) -> Iterator[str]:
        """All that is left, in pieces; lines are not counted."""
        if self._ahead:
            yield self._ahead
            self._ahead = None
        while block := self._text.read(_BLOCK):
            yield block

    def __next__(self) -> str:
        line = self._read()
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) <= MAX_ROW:
            return line
        while line and not line.endswith("\n"):
            line = self._text.readline(_BLOCK)
        raise BadRow(f"is longer than {MAX_ROW:,} characters")

    def _read(self) -> str:
        if self._ahead is not None:
            line, self._ahead = self._ahead, None
            return line
        return self._text.readline(MAX_ROW + 1)


# JSON


def _json_lines(lines: _Lines) -> Iterator[Row]:
    while True:
        try:
            line = next(lines)
            if line.strip():
                yield Row(lines.number, _parsed(line))
        except StopIteration:
            return
        except BadRow as error:
            yield Row(lines.number, None, str(error))


def _parsed(text: str) -> Any:
    _check_bytes(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"is not JSON ({safe_message(error)})") from error


def _check_bytes(text: str) -> None:
    if "\0" in text:
        raise BadRow("holds NUL")
    if _NOT_UTF8.search(text):
        raise BadRow("is not UTF-8")


def _json_elements(lines: _Lines) -> Iterator[Row]:
    """The rows of a JSON list, or of a mapping of ids to rows."""
    first = lines.number + 1
    is_mapping = lines.peek()[:1] == "{"
    for line, element in _elements(lines.blocks(), first):
        lines.number = line
        try:
            if isinstance(element, BadRow):
                raise element
            if not is_mapping:
                yield Row(line, _parsed(element))
                continue
            for name, row in _parsed(f"{{{element}}}").items():
                if not isinstance(row, dict):
                    raise BadRow(f"is {one_line(name, 40)}, which is no row")
                yield Row(line, {"id": name, **row})
        except BadRow as error:
            yield Row(line, None, str(error))


_OUTSIDE = re.compile(r'["{}\[\],\n]')
_INSIDE = re.compile(r'["\\\n]')


def _elements(blocks: Iterator[str], line: int) -> Iterator[tuple[int, str | BadRow]]:
    """The text of each element of a JSON list or mapping, and the line that it begins on.

    Only strings and brackets are told apart, so that an element that is not JSON does not hide the
    next one.
    """
    element, count = _Element(line), 0
    depth, in_string, escaped = 0, False, False
    for block in blocks:
        position = kept = int(escaped)
        if escaped:
            element.add(block[0], line)
            escaped = False
        while mark := (_INSIDE if in_string else _OUTSIDE).search(block, position):
            position, sign = mark.end(), mark[0]
            if sign == "\n":
                element.add(block[kept:position], line)
                kept, line = position, line + 1
            elif sign == '"':
                in_string = not in_string
            elif sign == "\\":
                escaped = position == len(block)
                position += 1
            elif sign in "[{":
                depth += 1
                if depth == 1:
                    kept = position
            elif sign in "]}":
                depth -= 1
            if (depth == 1 and sign == ",") or (depth == 0 and sign in "]}"):
                element.add(block[kept : mark.start()], line)
                kept = position
                if sign == "," or count or element.parts:
                    yield element.take(line)
                    count += 1
            if depth == 0 and sign in "]}":
                if block[position:].strip() or any(rest.strip() for rest in blocks):
                    yield line, BadRow("ends the rows, and there is more after it")
                return
        element.add(block[kept:], line)
    yield line, BadRow("ends the file within the rows")


class _Element:
    """The text of one element, as it comes."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.parts: list[str] = []
        self._size = 0

    def add(self, text: str, line: int) -> None:
        """More of it; nothing is kept of blank text before it, or once it is too long."""
        if not self.parts:
            if not text.strip():
                return
            self.line = line
        self._size += len(text)
        if self._size <= MAX_ROW:
            self.parts.append(text)

    def take(self, line: int) -> tuple[int, str | BadRow]:
        """Its line and text, and begin the next one on ``line``."""
        text: str | BadRow = "".join(self.parts)
        if self._size > MAX_ROW:
            text = BadRow(f"is longer than {MAX_ROW:,} characters")
        taken = self.line, text
        self.__init__(line)  # type: ignore[misc]
        return taken


# Tables


def _table_rows(path: Path, lines: _Lines, delimiter: str) -> Iterator[Row]:
    # Python's own limit for a cell is 128 KiB, less than ten passages; it is one for the process.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW))
    first = lines.peek()
    delimiter = delimiter or max(",;\t", key=first.count)
    table = csv.reader(lines, delimiter=delimiter, strict=True)
    names: list[str] = []
    while True:
        line = lines.number + 1
        try:
            cells = next(table)
            if not any(cells):
                continue
            _check_bytes("".join(cells))
            if not names:
                names = _columns(path, cells)
                continue
            if len(cells) > len(names):
                raise BadRow(f"has {len(cells)} cells for {len(names)} columns")
            row = dict(zip(names, cells, strict=False))
            row.pop("", None)  # pandas writes the number of the row under no name
            yield Row(line, row)
        except StopIteration:
            return
        except (csv.Error, BadRow) as error:
            if not names:
                raise BadTask(f"{path}:{line}: the line of columns {error}") from error
            yield Row(
                line,
                None,
                f"is no row of a table ({error})" if isinstance(error, csv.Error) else str(error),
            )


def _columns(path: Path, cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    twice = [name for name, times in Counter(names).items() if name and times > 1]
    if twice:
        raise BadTask(f"{path} has two columns named {twice[0]}: rename one")
    return names
