"""The form that files are converted into: sections of text and tables, under their headings."""

import codecs
import gzip
import re
from pathlib import Path
from typing import Any, NamedTuple

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NOT_WESTERN = re.compile(
    r"[^\W\d_][¡-ª¬-º¼-¿×÷][^\W\d_]|[\xa1-\xaa\xac-\xba\xbc-\xff]{3}|[\x80-\x9f\ufffd]"
)
"""Symbols within words, three accented letters in a row, undefined bytes: not Windows-1252."""


class NotRead(Exception):
    """A file cannot be read; the message is the reason."""


class Section(NamedTuple):
    """A part of a file that is cut into passages on its own."""

    text: str
    """Prose, or one line a row of a table."""
    metadata: dict[str, Any]
    """``title``, and ``page``, ``heading``, front matter or fields of a row where known."""
    header: str | None = None
    """None for prose; for a table what each of its passages begins with, perhaps nothing."""


class File:
    """One file to convert, and what could not be read of it."""

    def __init__(self, path: Path, encoding: str | None, max_bytes: int) -> None:
        self.name = path.name.removesuffix(".gz") if path.suffix == ".gz" else path.name
        self.suffix = Path(self.name).suffix.lower()
        self.encoding, self.max_bytes = encoding, max_bytes
        self.title = Path(self.name).stem.replace("_", " ")
        self.faults: list[str] = []
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            self.data = file.read(max_bytes + 1)
        if len(self.data) > max_bytes:
            raise NotRead(f"larger than {max_bytes / 2**20:,.0f} MiB")

    def text(self, declared: str | None = None) -> str:
        """Decode the file: by its mark, a declaration, UTF-8, the option, Windows-1252.

        Raises:
            NotRead: it is binary, or its encoding is unknown.
        """
        marked = next((n for mark, n in _BYTE_ORDER_MARKS if self.data.startswith(mark)), None)
        is_binary = marked is None and b"\0" in self.data
        for name in (marked, declared, None if is_binary else "utf-8", self.encoding):
            try:
                if name:
                    return self.data.decode(name)
            except (UnicodeDecodeError, LookupError) as error:
                if name == self.encoding:
                    raise NotRead(f"not {name}: give another --encoding ({error})") from error
        if is_binary:
            raise NotRead(f"binary data, and {self.suffix or 'this'} is not a kind that is read")
        text = self.data.decode("cp1252", "replace")
        if _NOT_WESTERN.search(text):
            raise NotRead(
                "neither UTF-8 nor Windows-1252: name its encoding, such as --encoding gb18030"
            )
        self.faults.append("not UTF-8: read as Windows-1252 (--encoding names another)")
        return text


class Outline:
    """Text and tables under their headings."""

    title: str | None = None
    """The first heading of the highest level."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []
        self._lines: list[str] = []
        self._has_body = False
        self._sections: list[Section] = []
        self._top = 7

    def open(self, level: int, name: str, line: str) -> None:
        """Begin a section; a heading without text stays with the section below it."""
        if self._has_body:
            self._end()
        name = re.sub(r"[*`]|\b_|_\b", "", name)
        self._path = [known for known in self._path if known[0] < level] + [(level, name)]
        self._lines.append(line)
        if level < self._top:
            self._top, self.title = level, name

    def add(self, line: str) -> None:
        """Add text to the section."""
        self._lines.append(line)
        self._has_body = self._has_body or bool(line.strip())

    def table(self, header: str, rows: list[str]) -> None:
        """Add a table, as a section of its own."""
        if self._has_body:
            self._end()
        above, self._lines = self._lines, []
        self._end("\n".join([*above, header]).strip() if rows else "", rows or [*above, header])

    def sections(self) -> list[Section]:
        """Return all sections."""
        self._end()
        return self._sections

    def _end(self, header: str | None = None, rows: list[str] | None = None) -> None:
        heading = {"heading": " > ".join(name for _, name in self._path)} if self._path else {}
        text = "\n".join(self._lines if rows is None else rows)
        self._sections.append(Section(text, heading, header))
        self._lines, self._has_body = [], False
