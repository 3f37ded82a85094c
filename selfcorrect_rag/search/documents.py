"""Find files, convert them in a separate process, and cut them into passages."""

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from langchain_core.documents import Document

from selfcorrect_rag.errors import require
from selfcorrect_rag.intake import valid
from selfcorrect_rag.search import convert as converting
from selfcorrect_rag.search.convert import NotRead, Section

INDEX_FILE = "index.sqlite3"
"""The file by which a folder is known as an index."""
PASSAGE_WORDS, PASSAGE_OVERLAP = 120, 20
"""Default length: the papers' passages have 100 words; MiniLM reads about 180 at most."""
MAX_BYTES = 256 * 2**20
MAX_TITLE = 200
TIME_LIMIT = 300.0
"""Seconds that the conversion of a file may take."""
# Scripts without spaces count by character, and a long run counts as several words.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|[^\s\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]{1,30}"
)


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
    given themselves may be links.
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


def convert(path: Path, encoding: str | None, max_bytes: int) -> tuple[list[Section], list[str]]:
    """Return the sections of a file, and what could not be read of it, or raise `NotRead`."""
    if converting.READERS.get(path.suffix.lower()) not in converting.ALONE:
        return converting.convert(path, encoding, max_bytes)
    for needed in ("kreuzberg", "lxml", "pypdf"):
        require(needed, "demo")
    # Called by its path, it loads nothing of this package; -P: no file beside it is a library.
    command = [sys.executable, "-P", converting.__file__, str(path), encoding or "", str(max_bytes)]
    try:
        run = subprocess.run(command, capture_output=True, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired as error:
        raise NotRead(f"takes longer than {TIME_LIMIT:g} s") from error
    if run.returncode:
        raise NotRead("the converter crashed on it")
    answer = json.loads(run.stdout.splitlines()[-1])
    if isinstance(answer, str):
        raise NotRead(answer)
    return [Section(*section) for section in answer[0]], answer[1]


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
    for found in find_files(paths, follow_links=follow_links):
        if isinstance(found, Problem):
            on_problem(found)
            continue
        try:
            sections, faults = convert(found, encoding, max_bytes)
        except NotRead as error:
            on_problem(Problem(source_name(found), str(error)))
            continue
        if faults:
            on_problem(Problem(source_name(found), "; ".join(faults), partly=True))
        yield from passages(sections, source_name(found), words, overlap)


def passages(
    sections: Iterable[Section], source: str, words: int, overlap: int
) -> Iterator[Document]:
    """Yield the passages of one file's sections, of about ``words`` words each."""
    chunk = 0
    for parts in _fitting(sections, words):
        (text, metadata, header), *others = parts
        if header is not None and not others:
            rows = split(valid(text), words, 0)
            texts = [f"{valid(header)}\n{lines}".strip() for lines in rows]
        else:
            whole = "\n".join(f"{part.header or ''}\n{part.text}".strip() for part in parts)
            texts = split(re.sub(r"[^\S\n]+", " ", valid(whole)), words, overlap)
        title = " ".join(valid(str(metadata["title"])).split())[:MAX_TITLE]
        for text in texts:
            known = {**metadata, "title": title, "source": source, "chunk": chunk}
            yield Document(text, metadata=known)
            chunk += 1


def _fitting(sections: Iterable[Section], words: int) -> Iterator[list[Section]]:
    """Group a small table with the text around it, if they have the same metadata."""
    group: list[Section] = []
    size = 0
    for section in sections:
        count = count_words(section.text) + count_words(section.header or "")
        is_mixed = bool(group) and (section.header, group[-1].header) != (None, None)
        if not (is_mixed and size + count <= words and section.metadata == group[0].metadata):
            yield from [group] if group else []
            group, size = [], 0
        group.append(section)
        size += count
    yield from [group] if group else []


def split(text: str, words: int, overlap: int) -> list[str]:
    """Cut prose at paragraphs, else lines, sentences or words."""
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


def count_words(text: str) -> int:
    """Count words; a character of Chinese, Japanese or Korean is a word."""
    return sum(1 for _ in _WORD.finditer(text))


def indexed_text(document: Document) -> str:
    """Return what is embedded and scored: title, headings and text."""
    title, heading = (str(document.metadata.get(key, "")) for key in ("title", "heading"))
    heading = heading.removeprefix(title).removeprefix(" > ")
    return valid("\n".join(filter(None, (title, heading, document.page_content))))


def content_id(document: Document) -> str:
    """Return a digest of title, heading and text."""
    return _digest(indexed_text(document))


def passage_id(document: Document) -> str:
    """Return a digest of source, title, heading and text."""
    return _digest(f"{document.metadata.get('source', '')}\0{indexed_text(document)}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]
