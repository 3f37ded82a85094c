"""Files to documents: what can be read is read, what cannot is named.

Files are hostile until read: sizes are bounded also inside gzip, special files are not opened,
links that lead in circles end, and one broken line, page or file never costs the others.
"""

import codecs
import gzip
import io
import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.errors import MissingExtra, SelfCorrectError
from selfcorrect_rag.extras import require
from selfcorrect_rag.search.index import clean, is_index
from selfcorrect_rag.search.json_rows import passages, row_passages

MAX_BYTES = 256 * 2**20
"""Default for the largest file, in bytes after gzip."""
LONGEST_TITLE = 200
"""Characters; titles are embedded with each passage and must leave it room."""

# Most specific first: UTF-32's mark begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class UnreadableFile(SelfCorrectError, ValueError):
    """A file that gives no documents; the message is the reason, without the path."""


@dataclass(frozen=True)
class Problem:
    """A file or folder that could not be read, or only in part."""

    path: str
    reason: str
    partly: bool = False
    """The file counts as read all the same."""


@dataclass(frozen=True)
class Loaded:
    """What one file holds."""

    documents: list[Document]
    """With ``title`` in the metadata, ``page`` for PDF, and a JSON row's own short fields."""
    faults: list[str]
    """What could not be read in it, in words."""


def load(
    paths: Iterable[str | Path], on_problem: Callable[[Problem], None], max_bytes: int = MAX_BYTES
) -> Iterator[Document]:
    """The documents of files and folders, not yet cut into passages.

    Metadata holds ``source`` (absolute path), ``title`` and what `load_bytes` adds. Each file or
    folder that cannot be read, or only in part, goes to ``on_problem``; nothing is raised for it.
    """
    for found in find_files(paths):
        if isinstance(found, Problem):
            on_problem(found)
            continue
        source = source_name(found)
        try:
            loaded = load_bytes(found.name, read_bytes(found, max_bytes), max_bytes)
        except UnreadableFile as error:
            on_problem(Problem(source, str(error)))
            continue
        if loaded.faults:
            on_problem(Problem(source, "; ".join(loaded.faults), partly=True))
        for document in loaded.documents:
            document.metadata["source"] = source
            yield document


def find_files(paths: Iterable[str | Path]) -> Iterator[Path | Problem]:
    """The readable kinds of files under ``paths``, each once and in a stable order.

    Folders are searched to the bottom and through links, without hidden files and without
    indexes of this package. Files of other kinds are a `Problem` only where named themselves.
    """
    seen: set[tuple[int, int]] = set()
    named = [Path(os.path.abspath(path)) for path in paths]
    waiting = named[::-1]
    while waiting:
        path = waiting.pop()
        try:
            status = path.stat()
            identity = status.st_dev, status.st_ino
            if identity in seen:  # a second name of the same thing, or a link in a circle
                continue
            if stat.S_ISDIR(status.st_mode):
                seen.add(identity)
                if not is_index(path):
                    entries = sorted(os.listdir(path), reverse=True)
                    waiting += [path / entry for entry in entries if not entry.startswith(".")]
            elif kind_of(path.name) in _READERS:
                seen.add(identity)
                yield path
            elif path in named:
                kinds = ", ".join(_READERS)
                yield Problem(source_name(path), f"not one of {kinds} (or .gz of them)")
        except OSError as error:
            if path in named or kind_of(path.name) in ("", *_READERS):
                yield Problem(source_name(path), error.strerror or str(error))


def source_name(path: Path) -> str:
    """The absolute path as text, also where the file system's bytes are no text."""
    return os.fsencode(os.path.abspath(path)).decode("utf-8", "backslashreplace")


def kind_of(name: str) -> str:
    """The ending that decides how a file is read, e.g. ".json" for ``a.JSON.gz``."""
    return Path(name.lower().removesuffix(".gz")).suffix


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of a regular file.

    Raises:
        UnreadableFile: it cannot be opened, is no regular file or has more than ``max_bytes``.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UnreadableFile("not a regular file")  # opening a pipe would wait for ever
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise UnreadableFile(error.strerror or str(error)) from error
    return _within(data, max_bytes)


def load_bytes(name: str, data: bytes, max_bytes: int = MAX_BYTES) -> Loaded:
    """The documents in the bytes of a file called ``name``.

    Raises:
        UnreadableFile: nothing in it can be read.
    """
    if name.lower().endswith(".gz"):
        try:
            with gzip.open(io.BytesIO(data)) as file:
                data = _within(file.read(max_bytes + 1), max_bytes)
        except (OSError, EOFError, zlib.error) as error:
            raise UnreadableFile(f"broken gzip: {error}") from error
    try:
        loaded = _READERS[kind_of(name)](Path(name), data)
    except RecursionError as error:
        raise UnreadableFile("nested too deeply") from error
    except MissingExtra as error:
        raise UnreadableFile(str(error)) from error
    documents = []
    for document in loaded.documents:
        document.page_content = tidy(document.page_content)
        title = " ".join(tidy(document.metadata["title"]).split())
        document.metadata["title"] = title[:LONGEST_TITLE]
        if document.page_content:
            documents.append(document)
    return Loaded(documents, loaded.faults if documents else [*loaded.faults, "no text in it"])


def tidy(text: str) -> str:
    """``text`` without what no index can store, and without runs of white space."""
    text = re.sub(r" ?\n ?", "\n", re.sub(r"[^\S\n]+", " ", clean(text)))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _within(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise UnreadableFile(f"larger than {max_bytes / 2**20:,.0f} MiB")
    return data


def _decode(data: bytes) -> tuple[str, list[str]]:
    """Text by its byte order mark, else as UTF-8, else as Windows-1252, which is then said."""
    try:
        for mark, encoding in _MARKS:
            if data.startswith(mark):
                return data.decode(encoding), []
        if b"\0" in data:
            raise UnreadableFile("binary, not text")
        return data.decode("utf-8"), []
    except UnicodeDecodeError as error:
        if error.encoding != "utf-8":
            raise UnreadableFile(f"broken {error.encoding}: {error.reason}") from error
        return data.decode("cp1252", "replace"), ["not UTF-8: read as Windows-1252"]


def _read_text(path: Path, data: bytes) -> Loaded:
    text, faults = _decode(data)
    return Loaded([Document(text, metadata={"title": _stem(path)})], faults)


def _read_markdown(path: Path, data: bytes) -> Loaded:
    text, faults = _decode(data)
    heading = re.search(r"^# +(\S.*)$", text, re.MULTILINE)
    title = heading[1] if heading else _stem(path)
    return Loaded([Document(text, metadata={"title": title})], faults)


def _read_json(path: Path, data: bytes) -> Loaded:
    text, faults = _decode(data)
    try:
        value = json.loads(text)
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            return _read_jsonl(path, data)  # many a .json file holds one row a line
        raise UnreadableFile(f"not JSON: {error}") from error
    return _with_passages(passages(value), faults)


def _read_jsonl(path: Path, data: bytes) -> Loaded:
    text, faults = _decode(data)
    rows: list[Any] = []
    broken: list[str] = []
    for number, line in enumerate(io.StringIO(text), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                broken.append(f"line {number} is not JSON ({error})")
    if broken:
        if not rows:
            raise UnreadableFile(broken[0])
        more = f" and {len(broken) - 1:,} more lines" if len(broken) > 1 else ""
        faults.append(broken[0] + more)
    return _with_passages((found for row in rows for found in row_passages(row)), faults)


def _with_passages(found: Iterator[Document], faults: list[str]) -> Loaded:
    documents = list(found)
    if not documents:
        raise UnreadableFile("no passages in it: rows need a field such as title, text or ctxs")
    return Loaded(documents, faults)


def _read_pdf(path: Path, data: bytes) -> Loaded:
    pypdf = require("pypdf", "chroma")
    documents: list[Document] = []
    faults: list[str] = []
    # Broken PDFs raise all kinds of errors out of pypdf, not only its own.
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        pages = len(reader.pages)
        title = (reader.metadata.title if reader.metadata else None) or _stem(path)
    except Exception as error:
        raise UnreadableFile(f"broken or encrypted PDF: {error}") from error
    for number in range(pages):
        try:
            text = reader.pages[number].extract_text()
        except Exception as error:
            faults.append(f"page {number + 1}: {error}")
        else:
            documents.append(Document(text, metadata={"title": str(title), "page": number + 1}))
    if not any(document.page_content.strip() for document in documents):
        raise UnreadableFile("; ".join(faults) or "no text in it; a scan needs OCR first")
    return Loaded(documents, faults)


def _stem(path: Path) -> str:
    return path.name.split(".")[0].replace("_", " ")


_READERS: dict[str, Callable[[Path, bytes], Loaded]] = {
    ".txt": _read_text,
    ".md": _read_markdown,
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".pdf": _read_pdf,
}
