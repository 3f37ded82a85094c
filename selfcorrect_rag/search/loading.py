"""Reads files into documents, and reports what cannot be read.

Files are untrusted: sizes are bounded also inside gzip, memory does not grow with them, and one
broken line, page or file does not affect the others.
"""

import codecs
import gzip
import hashlib
import html
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from langchain_core.documents import Document

from selfcorrect_rag.errors import MissingExtra, require
from selfcorrect_rag.search.files import FoundFile, Problem, UnreadableFile, find_files, kind_of
from selfcorrect_rag.search.json_rows import passages, row_passages
from selfcorrect_rag.search.office import read_office
from selfcorrect_rag.search.page_text import page_text
from selfcorrect_rag.state.intake import valid

MAX_BYTES = 256 * 2**20
"""Default for the largest file, in bytes after gzip."""
WHOLE_FRACTION = 4
"""What is read whole has a limit of 1/4 of that: a line of .jsonl, and files of all kinds but .txt,
.md and .jsonl. So have the parts of Word, PowerPoint and Excel files together, unpacked."""
PIECE = 2**20
"""Maximum characters of one document; a longer text is split into several."""
MAX_TITLE = 200
"""Maximum characters; titles are embedded with each passage and must leave it room."""

_REPLACED = "what is no text in it was replaced"
_BLOCK_BYTES = 2**18
_PIECEWISE = (".txt", ".md", ".jsonl")
_BINARY = (".pdf", ".docx", ".pptx", ".xlsx")
_PAGE_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)
# Most specific first: UTF-32's mark begins with UTF-16's.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def load(
    paths: Iterable[str | Path],
    on_problem: Callable[[Problem], None],
    max_bytes: int = MAX_BYTES,
    *,
    follow_links: bool = False,
) -> Iterator[Document]:
    """The documents of files and folders, not yet cut into passages.

    Metadata holds ``source`` (absolute path), ``title`` and what `OpenFile.documents` adds. Each
    file or folder that cannot be read, or only in part, goes to ``on_problem``, and so does each
    link that leads out of ``paths`` unless ``follow_links``; nothing is raised for it.
    """
    for found in find_files(paths, follow_links=follow_links):
        if isinstance(found, Problem):
            on_problem(found)
            continue
        try:
            with open_file(found, max_bytes) as file:
                for document in file.documents():
                    document.metadata["source"] = found.name
                    yield document
        except UnreadableFile as error:
            on_problem(Problem(found.name, str(error)))
            continue
        if file.faults:
            on_problem(Problem(found.name, "; ".join(file.faults), partly=True))


@contextmanager
def open_file(found: FoundFile, max_bytes: int = MAX_BYTES) -> Iterator["OpenFile"]:
    """A file, scanned once for its digest and encoding.

    Raises:
        UnreadableFile: it cannot be opened, is too large, or is not what its name says.
    """
    with found.open() as file:
        if not found.path.name.lower().endswith(".gz"):
            yield OpenFile(found.path, file, file, max_bytes)
            return
        with gzip.open(file) as content:
            yield OpenFile(found.path, file, content, max_bytes)


class OpenFile:
    """A file that is read in pieces, after its digest and encoding are known.

    Args:
        path: Its suffix decides how it is read; its name is the default title.
        file: The file on the disk.
        content: The same file, or its decompressed content.
        max_bytes: Largest ``content``, in bytes.

    Raises:
        UnreadableFile: nothing in it can be read.
    """

    digest: str
    """SHA-256 of the content."""
    faults: list[str]
    """Parts that could not be read; complete once all documents are read."""
    done: float
    """Fraction of the file that is read, in [0, 1]."""

    def __init__(
        self, path: Path, file: BinaryIO, content: BinaryIO | gzip.GzipFile, max_bytes: int
    ) -> None:
        self.path = path
        self.faults = []
        self.done = 0.0
        self.max_whole = max(1, max_bytes // WHOLE_FRACTION)
        self._file = file
        self._content = content
        self._stamp = _stamp(file)
        self._kind = kind_of(path.name)
        encoding = self._scan(max_bytes if self._kind in _PIECEWISE else self.max_whole)
        if encoding == "cp1252":
            self.faults.append("not UTF-8: read as Windows-1252")
        self._text = io.TextIOWrapper(content, encoding, "replace", newline="\n")

    def documents(self) -> Iterator[Document]:
        """The documents of the file, in order.

        ``title`` is in the metadata, ``page`` for PDF and slides, and a JSON row's own short
        fields. A text of more than `PIECE` characters is split into several.

        Raises:
            UnreadableFile: nothing in it can be read, or it changes meanwhile.
        """
        empty = True
        with _reading_errors():
            for document in _READERS[self._kind](self):
                unfit = valid(document.page_content) != document.page_content
                document.page_content = tidy(document.page_content)
                if unfit and _REPLACED not in self.faults:
                    self.faults.append(_REPLACED)
                title = " ".join(tidy(document.metadata["title"]).split())
                document.metadata["title"] = title[:MAX_TITLE]
                if document.page_content:
                    empty = False
                    yield document
        self.done = 1.0
        if _stamp(self._file) != self._stamp:
            raise UnreadableFile("changed while it was read: run again")
        if empty:
            self.faults.append("no text in it")

    def binary(self) -> bytes:
        """The whole content."""
        self._content.seek(0)
        return self._content.read()

    def text(self) -> TextIO:
        """The content from its beginning as text, line ends as they are."""
        self._text.seek(0)
        return self._text

    def position(self) -> float:
        """Fraction of the file on the disk that is read, in [0, 1]."""
        return min(1.0, self._file.tell() / max(1, self._stamp[0]))

    def _scan(self, limit: int) -> str:
        """Compute the digest, and return the encoding."""
        digest = hashlib.sha256()
        size = 0
        encoding = _Encoding()
        with _reading_errors():
            while block := self._content.read(_BLOCK_BYTES):
                size += len(block)
                if size > limit:
                    raise UnreadableFile(f"larger than {limit / 2**20:,.0f} MiB")
                digest.update(block)
                if self._kind not in _BINARY:
                    encoding.feed(block)
            encoding.feed(b"", final=True)
        self.digest = digest.hexdigest()
        return encoding.name


class _Encoding:
    """The encoding of text: by its byte order mark, else UTF-8, else Windows-1252."""

    name = ""

    def feed(self, block: bytes, final: bool = False) -> None:
        if not self.name:
            marked = (name for mark, name in _BYTE_ORDER_MARKS if block.startswith(mark))
            self.name = next(marked, "utf-8")
            self._decoder = codecs.getincrementaldecoder(self.name)()
        if b"\0" in block and self.name in ("utf-8", "cp1252"):
            raise UnreadableFile("binary, not text")
        try:
            self._decoder.decode(block, final)
        except UnicodeDecodeError as error:
            if error.encoding != "utf-8":
                raise UnreadableFile(f"broken {error.encoding}: {error.reason}") from error
            self.name = "cp1252"
            self._decoder = codecs.getincrementaldecoder(self.name)("replace")


def tidy(text: str) -> str:
    """``text`` as every index can store it, with runs of white space collapsed."""
    text = re.sub(r" ?\n ?", "\n", re.sub(r"[^\S\n]+", " ", valid(text)))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


@contextmanager
def _reading_errors() -> Iterator[None]:
    """Raise what reading a broken file raises as `UnreadableFile`."""
    try:
        yield
    except RecursionError as error:
        raise UnreadableFile("nested too deeply") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UnreadableFile(f"broken gzip: {error}") from error
    except MissingExtra as error:
        raise UnreadableFile(str(error)) from error
    except OSError as error:
        raise UnreadableFile(error.strerror or str(error)) from error


def _stamp(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _read_text(file: OpenFile) -> Iterator[Document]:
    for piece in _pieces(file, file.text()):
        yield Document(piece, metadata={"title": _title(file.path)})


def _read_markdown(file: OpenFile) -> Iterator[Document]:
    title = None
    for piece in _pieces(file, file.text()):
        if title is None:
            heading = re.search(r"^# +(\S.*)$", piece, re.MULTILINE)
            title = heading[1] if heading else _title(file.path)
        yield Document(piece, metadata={"title": title})


def _read_html(file: OpenFile) -> Iterator[Document]:
    page = file.text().read()
    named = _PAGE_TITLE.search(page)
    title = html.unescape(named[1]).strip() if named else ""
    for piece in _pieces(file, io.StringIO(page_text(page))):
        yield Document(piece, metadata={"title": title or _title(file.path)})


def _read_office(file: OpenFile) -> Iterator[Document]:
    for part, text in read_office(file._kind, file.binary(), file.max_whole):
        title = f"{_title(file.path)}, {part}" if isinstance(part, str) else _title(file.path)
        page = {"page": part} if isinstance(part, int) and part else {}
        for piece in _pieces(file, io.StringIO(text)):
            yield Document(piece, metadata={"title": title, **page})


def _pieces(file: OpenFile, text: TextIO) -> Iterator[str]:
    """Parts of at most `PIECE` characters: whole paragraphs, else lines, sentences or words."""
    rest = ""
    while block := text.read(PIECE - len(rest)):
        rest += block
        file.done = file.position()
        if len(rest) == PIECE:
            breaks = ("\n\n", "\r\n\r\n", "\n", ". ", " ")
            ends = (start + len(b) for b in breaks if (start := rest.rfind(b, PIECE // 2)) >= 0)
            end = next(ends, PIECE)
            yield rest[:end]
            rest = rest[end:]
    yield rest


def _read_json(file: OpenFile) -> Iterator[Document]:
    try:
        value = json.loads(file.text().read())
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            yield from _read_jsonl(file)  # many a .json file holds one row a line
            return
        raise UnreadableFile(f"not JSON: {error}") from error
    documents = list(_at_least_one(passages(value)))
    for number, document in enumerate(documents, start=1):
        file.done = number / len(documents)
        yield document


def _read_jsonl(file: OpenFile) -> Iterator[Document]:
    yield from _at_least_one(_rows(file), file.faults)


def _rows(file: OpenFile) -> Iterator[Document]:
    broken = 0
    for number, line in enumerate(_lines(file.text(), file.max_whole), start=1):
        if not line.strip():
            continue
        fault = ""
        if len(line) == file.max_whole:
            fault = f"is too long ({len(line):,} characters or more)"
        else:
            try:
                file.done = file.position()
                yield from row_passages(json.loads(line))
            except (ValueError, RecursionError) as error:
                fault = f"is not JSON ({error})"
        if fault:
            broken += 1
            if broken == 1:
                file.faults.append(f"line {number} {fault}")
    if broken > 1:
        file.faults[-1] += f" and {broken - 1:,} more lines"


def _lines(text: TextIO, limit: int) -> Iterator[str]:
    """The lines, each cut to ``limit`` characters."""
    while line := text.readline(limit):
        yield line
        while len(line) == limit and not line.endswith("\n"):
            line = text.readline(limit)


def _at_least_one(found: Iterator[Document], faults: Sequence[str] = ()) -> Iterator[Document]:
    empty = True
    for document in found:
        empty = False
        yield document
    if empty:
        reason = "no passages in it: rows need a field such as title, text or ctxs"
        raise UnreadableFile("; ".join([*faults, reason]))


def _read_pdf(file: OpenFile) -> Iterator[Document]:
    pypdf = require("pypdf", "chroma")
    # Broken PDFs raise all kinds of errors out of pypdf, not only its own.
    try:
        reader = pypdf.PdfReader(io.BytesIO(file.binary()))
        pages = len(reader.pages)
        title = (reader.metadata.title if reader.metadata else None) or _title(file.path)
    except Exception as error:
        raise UnreadableFile(f"broken or encrypted PDF: {error}") from error
    empty = True
    for number in range(pages):
        try:
            text = reader.pages[number].extract_text()
        except Exception as error:
            file.faults.append(f"page {number + 1}: {error}")
        else:
            empty = empty and not text.strip()
            file.done = (number + 1) / pages
            yield Document(text, metadata={"title": str(title), "page": number + 1})
    if empty:
        raise UnreadableFile("; ".join(file.faults) or "no text in it; a scan needs OCR first")


def _title(path: Path) -> str:
    return path.name.split(".")[0].replace("_", " ")


_READERS: dict[str, Callable[[OpenFile], Iterator[Document]]] = {
    ".txt": _read_text,
    ".md": _read_markdown,
    ".html": _read_html,
    ".htm": _read_html,
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".pdf": _read_pdf,
    ".docx": _read_office,
    ".pptx": _read_office,
    ".xlsx": _read_office,
}
