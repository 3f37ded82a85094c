"""Read files as passages: conversion in a process of its own, then cutting."""

import hashlib
import json
import math
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

from langchain_core.documents import Document

from selfcorrect_rag.errors import require
from selfcorrect_rag.intake import valid
from selfcorrect_rag.search.files import Problem, find_files, source_name
from selfcorrect_rag.search.sections import NotRead, Section

PASSAGE_WORDS = 120
"""Default length: the papers' passages have 100 words; MiniLM reads about 180 at most."""
PASSAGE_OVERLAP = 20
MAX_BYTES = 256 * 2**20
MAX_TITLE = 200
TIME_LIMIT = 60.0
"""Seconds that a file may take for each of its sections."""
# Scripts without spaces count by character, and a long run counts as several words.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|[^\s\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]{1,30}"
)


class Converter:
    """A process that converts files; it is started at first use, and again after it died.

    Args:
        encoding: Of text files without a byte order mark; None detects it.
        max_bytes: Size of the largest file, unpacked if it is gzipped.
        time_limit: Seconds for each section of a file.
    """

    def __init__(
        self,
        encoding: str | None = None,
        max_bytes: int = MAX_BYTES,
        time_limit: float = TIME_LIMIT,
    ) -> None:
        self.encoding, self.max_bytes, self.time_limit = encoding, max_bytes, time_limit
        self._process: subprocess.Popen[str] | None = None

    def sections(self, path: Path, faults: list[str]) -> Iterator[Section]:
        """Yield the sections of a file; what could not be read of it goes into ``faults``.

        Raises:
            NotRead: it cannot be read; the message is the reason.
        """
        process = self._started()
        assert process.stdin is not None
        finished = False
        try:
            request = json.dumps([str(path), self.encoding, self.max_bytes])
            process.stdin.write(request + "\n")
            process.stdin.flush()
            while isinstance(answer := self._answer(process), list):
                yield Section(*answer)
            finished = True
        except BrokenPipeError as error:
            raise NotRead("the converter crashed before it") from error
        finally:
            if not finished:
                self.close()
        faults += answer["faults"]
        if answer["reason"]:
            raise NotRead(answer["reason"])

    def _answer(self, process: "subprocess.Popen[str]") -> Any:
        late = threading.Event()

        def give_up() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self.time_limit, give_up)
        timer.daemon = True
        timer.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
        finally:
            timer.cancel()
        if late.is_set():
            raise NotRead(f"takes longer than {self.time_limit:g} s")
        if not line.endswith("\n"):
            raise NotRead("the converter crashed on it")
        return json.loads(line)

    def _started(self) -> "subprocess.Popen[str]":
        if self._process is None or self._process.poll() is not None:
            require("kreuzberg", "demo")
            require("pypdf", "demo")
            # -P: a file in the current folder must not stand in for a library.
            folders = os.pathsep.join(
                folder for folder in map(os.path.abspath, filter(None, sys.path))
            )
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "selfcorrect_rag.search.convert"],
                env={**os.environ, "PYTHONPATH": folders},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
            )
        return self._process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def load(
    paths: Iterable[str | Path],
    on_problem: Callable[[Problem], None],
    *,
    words: int = PASSAGE_WORDS,
    overlap: int = PASSAGE_OVERLAP,
    encoding: str | None = None,
    max_bytes: int = MAX_BYTES,
    follow_links: bool = False,
) -> Iterator[Document]:
    """Yield the passages of files and folders, for any vector store.

    Metadata: ``source`` (absolute path), ``title``, ``chunk`` (place in the file, from 0), and
    where known ``page``, ``heading`` and front matter. Files that cannot be read, wholly or in
    part, go to ``on_problem``.
    """
    with Converter(encoding, max_bytes) as converter:
        for found in find_files(paths, follow_links=follow_links):
            if isinstance(found, Problem):
                on_problem(found)
                continue
            faults: list[str] = []
            try:
                yield from passages(
                    converter.sections(found, faults), source_name(found), words, overlap
                )
            except NotRead as error:
                on_problem(Problem(source_name(found), str(error)))
            else:
                if faults:
                    on_problem(Problem(source_name(found), "; ".join(faults), partly=True))


def passages(
    sections: Iterable[Section], source: str, words: int, overlap: int
) -> Iterator[Document]:
    """Yield the passages of one file's sections, of about ``words`` words each.

    Sections with the same metadata that fit into one passage, such as a small table and the text
    around it, stay together.
    """
    chunk = 0
    for metadata, parts in _fitting(sections, words):
        if len(parts) == 1 and parts[0].header is not None:
            texts = split_rows(valid(parts[0].text), valid(parts[0].header), words)
        else:
            whole = "\n".join(f"{part.header or ''}\n{part.text}".strip() for part in parts)
            texts = split(re.sub(r"[^\S\n]+", " ", valid(whole)), words, overlap)
        title = " ".join(valid(str(metadata["title"])).split())[:MAX_TITLE]
        for text in texts:
            known = {**metadata, "title": title, "source": source, "chunk": chunk}
            yield Document(text, metadata=known)
            chunk += 1


def _fitting(
    sections: Iterable[Section], words: int
) -> Iterator[tuple[dict[str, Any], list[Section]]]:
    together: list[Section] = []
    size = 0
    for section in sections:
        count = count_words(section.text) + count_words(section.header or "")
        tables = bool(together) and (section.header, together[-1].header) != (None, None)
        fits = tables and size + count <= words and section.metadata == together[0].metadata
        if together and not fits:
            yield together[0].metadata, together
            together, size = [], 0
        together.append(section)
        size += count
    if together:
        yield together[0].metadata, together


def split(text: str, words: int, overlap: int) -> list[str]:
    """Cut prose at paragraphs, else lines, sentences or words.

    Raises:
        ValueError: not 0 <= overlap < words.
    """
    if not 0 <= overlap < words:
        raise ValueError(f"passages of {words} words cannot overlap by {overlap}")
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    splitter = RecursiveCharacterTextSplitter(
        chunk_size=words,
        chunk_overlap=overlap,
        length_function=count_words,
        separators=["\n\n", "\n", r"(?<=[.!?…])\s+|(?<=[。！？])", " ", ""],
        is_separator_regex=True,
        keep_separator="end",
    )
    return [piece.strip() for piece in splitter.split_text(text) if piece.strip()]


def split_rows(text: str, header: str, words: int) -> list[str]:
    """Pack whole lines of a table, each passage with the header; a longer line is cut."""
    found: list[str] = []
    lines: list[str] = []
    size = 0
    for line in filter(str.strip, text.split("\n")):
        for piece in split(line, words, 0) if count_words(line) > words else [line]:
            count = count_words(piece)
            if lines and size + count > words:
                found.append("\n".join(lines))
                lines, size = [], 0
            lines.append(piece)
            size += count
    found.append("\n".join(lines))
    return [f"{header}\n{rows}".strip() for rows in found if rows]


def count_words(text: str) -> int:
    """Count words; a character of Chinese, Japanese or Korean is a word."""
    return sum(1 for _ in _WORD.finditer(text))


def indexed_text(document: Document) -> str:
    """Return what is embedded and scored: title, headings and text."""
    title, heading = (str(document.metadata.get(key, "")) for key in ("title", "heading"))
    heading = heading.removeprefix(title).removeprefix(" > ")
    return "\n".join(filter(None, (title, heading, document.page_content)))


def content_id(document: Document) -> str:
    """Return 32 hexadecimal digits that depend on title, heading and text."""
    return hashlib.sha256(indexed_text(document).encode()).hexdigest()[:32]


def passage_id(document: Document) -> str:
    """Return 32 hexadecimal digits that depend on source, title, heading and text."""
    key = f"{document.metadata.get('source', '')}\0{indexed_text(document)}"
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def storable(document: Document) -> Document:
    """Return the document with text and metadata that SQLite and Chroma can store."""
    metadata = {
        valid(str(key)).removeprefix("chroma:").lstrip("#$"): _plain(value)
        for key, value in document.metadata.items()
        if value is not None
    }
    return Document(valid(document.page_content), metadata={k: v for k, v in metadata.items() if k})


def _plain(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return [valid(item) for item in value]
    is_whole = isinstance(value, int) and -(2**63) <= value < 2**63
    if is_whole or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, str | int | float):
        return valid(str(value))
    try:
        return valid(json.dumps(value, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return valid(str(value))
