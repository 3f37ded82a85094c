"""Find files, convert them in separate processes, cut them into passages, and index those.

Nothing is indexed twice, and nothing is lost when a run is killed: a file is recorded as finished
once all its passages are in the index. The next run skips finished files by their content, and in
the file that was cut short the passages that are there. A changed file's passages replace its
earlier ones. A file that has vanished keeps its passages until a run prunes.
"""

import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from langchain_core.documents import Document

from selfcorrect_rag.errors import require
from selfcorrect_rag.intake import title_line, valid
from selfcorrect_rag.search import convert as converting
from selfcorrect_rag.search.convert import NO_TEXT, NotRead, Section
from selfcorrect_rag.search.index import BATCH_SIZE, Index, is_index, passage_id

PASSAGE_WORDS, PASSAGE_OVERLAP = 120, 20
"""Default length: the papers' passages have 100 words; MiniLM reads about 180 at most."""
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


@dataclass(frozen=True)
class IndexReport:
    """Counts of files (read, in whole or in part; already indexed and unchanged), counts of
    passages (new; of earlier versions or pruned; different ones in the index now), the files that
    could not be read, and the indexed ones under the given paths that no longer exist."""

    files: int
    unchanged: int
    added: int
    removed: int
    passages: int
    problems: tuple[Problem, ...]
    vanished: tuple[str, ...]


def find_files(paths: Iterable[str | Path]) -> Iterator[Path | Problem]:
    """Yield the files under ``paths``, each once and in a stable order, and what is not read.

    Folders are searched to the bottom, without names that begin with a dot and without indexes. A
    symbolic link that leads out of ``paths`` is a `Problem`; paths that are given may be links.
    """
    stack = [Path(os.path.abspath(path)) for path in paths][::-1]
    roots, seen = [os.path.realpath(path) for path in stack], set[str]()
    while stack:
        path = stack.pop()
        try:
            real = os.path.realpath(path, strict=True)
            if real in seen:  # a second name, or a link in a circle
                continue
            if not any(Path(real).is_relative_to(root) for root in roots):
                told = f"leads out of the folder, to {real}: give that path too"
                yield Problem(source_name(path), told)
                continue
            seen.add(real)
            if path.is_file():
                yield path
            elif not path.is_dir():
                yield Problem(source_name(path), "not a regular file")
            elif not is_index(path):
                names = sorted(os.listdir(path), reverse=True)
                stack += [path / name for name in names if not name.startswith(".")]
        except OSError as error:
            yield Problem(source_name(path), error.strerror or str(error))


def source_name(path: Path) -> str:
    """Return the absolute path as text, even if the file system's bytes are not text."""
    return os.fsencode(os.path.abspath(path)).decode("utf-8", "backslashreplace")


def read_file(path: Path, encoding: str | None) -> tuple[list[Section], Problem | None]:
    """Return the sections of a file, none if it cannot be read, and what could not be read."""
    is_alone = converting.READERS.get(path.suffix.lower()) in converting.ALONE
    try:
        sections, faults = (_convert_alone if is_alone else converting.convert)(path, encoding)
    except NotRead as error:
        return [], Problem(source_name(path), str(error))
    return sections, Problem(source_name(path), "; ".join(faults), partly=True) if faults else None


def _convert_alone(path: Path, encoding: str | None) -> tuple[list[Section], list[str]]:
    require("lxml", "demo"), require("kreuzberg", "demo")
    # Called by its path, it loads nothing of this package; -P: no file beside it is a library.
    command = [sys.executable, "-P", converting.__file__, str(path), encoding or ""]
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
) -> Iterator[Document]:
    """Yield the passages of files and folders, for any vector store.

    Metadata: ``source`` (absolute path), ``title``, ``chunk`` (place in the file, from 0), and
    where known ``page``, ``heading`` and front matter. Files that cannot be read, wholly or in
    part, go to ``on_problem``.
    """
    for found in find_files(paths):
        if isinstance(found, Problem):
            on_problem(found)
            continue
        sections, problem = read_file(found, encoding)
        if problem:
            on_problem(problem)
        yield from passages(sections, source_name(found), words, overlap)


def index_paths(
    paths: Iterable[str | Path],
    index: Index,
    *,
    chunk_words: int = PASSAGE_WORDS,
    chunk_overlap: int = PASSAGE_OVERLAP,
    encoding: str | None = None,
    prune: bool = False,
    on_progress: Callable[[float, int, str], None] = lambda done, passages, source: None,
) -> IndexReport:
    """Put files, and the files in folders, into ``index``; see `load` for the metadata.

    Args:
        encoding: Of text files that are not UTF-8; None detects Windows-1252 and refuses the rest.
        prune: Remove the passages of files under ``paths`` that no longer exist.
        on_progress: Called after each batch and file with the fraction of files that are done, the
            passages handled, and the file.
    """
    split("", chunk_words, chunk_overlap)  # bad sizes fail before anything is read
    paths = [Path(os.path.abspath(path)) for path in paths]
    found = list(find_files(paths))
    files = [path for path in found if isinstance(path, Path)]
    problems = [problem for problem in found if isinstance(problem, Problem)]
    read = unchanged = handled = added = removed = 0
    with index.writing():
        known = index.files()
        for place, path in enumerate(files):
            source, digest = source_name(path), ""
            with suppress(OSError), path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            fingerprint = f"{digest}:{chunk_words}:{chunk_overlap}:{encoding}"
            finished, fault = known.get(source, ("", ""))
            problem = Problem(source, fault, partly=True) if fault else None
            if finished == fingerprint:
                unchanged += 1
            else:
                sections, problem = read_file(path, encoding)
                rest, ids = passages(sections, source, chunk_words, chunk_overlap), set[str]()
                while batch := list(islice(rest, BATCH_SIZE)):
                    added += index.write(batch)
                    ids.update(map(passage_id, batch))
                    handled += len(batch)
                    on_progress(place / len(files), handled, source)
                if sections:
                    fault = problem.reason if problem else ""
                    removed += index.finish(source, ids, fingerprint, fault)
                    read += 1
                elif problem and problem.reason == NO_TEXT:  # what it had is gone
                    removed += index.finish(source, set())
            problems += [problem] if problem else []
            on_progress((place + 1) / len(files), handled, source)
        present = set(map(source_name, files))  # names that are not UTF-8 do not lead back
        indexed = set(index.files())
        real = {os.path.realpath(path) for path in files if source_name(path) in indexed}
        vanished = [
            source
            for source in sorted(indexed - present)
            if any(Path(source).is_relative_to(path) for path in paths) and _is_gone(source, real)
        ]
        if prune:
            removed += sum(index.finish(source, set()) for source in vanished)
    counts = read, unchanged, added, removed, len(index)
    return IndexReport(*counts, tuple(problems), tuple(vanished))


def _is_gone(source: str, found: set[str]) -> bool:
    """Return whether a file is no longer there, or was found by another name."""
    try:
        return not stat.S_ISREG(os.stat(source).st_mode) or os.path.realpath(source) in found
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # its folder cannot be read
        return False


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
            spaced = re.sub(r"[^\S\n]+(\n?)", lambda space: space[1] or " ", valid(whole))
            texts = split(spaced, words, overlap)
        title = title_line(metadata["title"])
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
