"""Files into an index: nothing twice, nothing lost when a run is killed.

Passages are written in batches. A killed run loses at most the batch it was writing; the next run
skips finished files by their content and, in the file that was cut short, the passages that are
there. A changed file's passages replace those of its earlier version. A file that has vanished
keeps its passages until a run prunes.
"""

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.search.chunking import CHUNK_OVERLAP, CHUNK_WORDS, chunk
from selfcorrect_rag.search.files import (
    FoundFile,
    Problem,
    UnreadableFile,
    find_files,
    source_name,
)
from selfcorrect_rag.search.index import BATCH_SIZE, Index, index_errors, passage_id, storable
from selfcorrect_rag.search.loading import MAX_BYTES, OpenFile, open_file

FILE = "files.sqlite3"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    source TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, fault TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS holds (
    source TEXT NOT NULL, id TEXT NOT NULL, fingerprint TEXT NOT NULL, PRIMARY KEY (source, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS holders ON holds (id);
"""


class FileRecords:
    """Records which file put which passages into an index, for one writer at a time.

    A source is a file's absolute path; its fingerprint follows from its content and how it was cut.
    A source is finished when all its passages are in the index. Passages of an earlier fingerprint
    are stale from then on, unless another source holds them too.

    Raises:
        IndexBusy: another process holds the records; the lock ends with that process.
    """

    def __init__(self, folder: Path) -> None:
        with index_errors(folder):
            self._database = sqlite3.connect(folder / FILE, timeout=0)
            try:
                self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._database.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} COMMIT;")
            except sqlite3.Error:
                self._database.close()
                raise

    def close(self) -> None:
        """Release the lock."""
        self._database.close()

    def finished(self, source: str) -> str | None:
        """The fingerprint of which all passages of ``source`` are in the index, if any."""
        query = "SELECT fingerprint FROM files WHERE source = ?"
        row = self._database.execute(query, (source,)).fetchone()
        return row[0] if row else None

    def fault(self, source: str) -> str | None:
        """Why parts of a finished source could not be read."""
        query = "SELECT fault FROM files WHERE source = ?"
        fault: str | None = self._database.execute(query, (source,)).fetchone()[0]
        return fault

    def sources(self) -> list[str]:
        """All sources that hold passages, finished or not."""
        query = "SELECT source FROM holds UNION SELECT source FROM files ORDER BY source"
        return [source for (source,) in self._database.execute(query)]

    def record(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Record (source, passage id, fingerprint), before the passages go into the index."""
        rows = list(rows)
        begun = {(source, fingerprint) for source, _, fingerprint in rows}
        with self._database:
            self._database.executemany("INSERT OR REPLACE INTO holds VALUES (?, ?, ?)", rows)
            # From here on no earlier version is complete, should the file revert to it.
            self._database.executemany(
                "DELETE FROM files WHERE source = ? AND fingerprint <> ?", begun
            )

    def stale(self, source: str, fingerprint: str | None = None) -> list[str]:
        """The passages that only ``source`` holds, and not with this ``fingerprint``."""
        query = """
            SELECT id FROM holds AS mine WHERE source = ? AND fingerprint IS NOT ? AND NOT EXISTS
            (SELECT 1 FROM holds AS others WHERE others.id = mine.id AND others.source <> ?)
        """
        return [id_ for (id_,) in self._database.execute(query, (source, fingerprint, source))]

    def reopen(self, ids: Iterable[str]) -> None:
        """Record that the sources which hold these passages are not finished."""
        query = "DELETE FROM files WHERE source IN (SELECT source FROM holds WHERE id = ?)"
        with self._database:
            self._database.executemany(query, ((id_,) for id_ in ids))

    def transaction(self) -> sqlite3.Connection:
        """A transaction for `finish` and `forget`."""
        return self._database

    def finish(self, source: str, fingerprint: str, fault: str | None) -> None:
        """Record that all of ``source`` is in the index, and forget its earlier versions."""
        self._database.execute(
            "DELETE FROM holds WHERE source = ? AND fingerprint <> ?", (source, fingerprint)
        )
        self._database.execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (source, fingerprint, fault)
        )

    def forget(self, source: str) -> None:
        """Record that ``source`` has no passages."""
        self._database.execute("DELETE FROM holds WHERE source = ?", (source,))
        self._database.execute("DELETE FROM files WHERE source = ?", (source,))


@dataclass(frozen=True)
class IndexReport:
    """The counts and problems of one run of indexing."""

    files: int
    """Files read, in whole or in part."""
    unchanged: int
    """Files already indexed and unchanged."""
    added: int
    """Passages that were not in the index before."""
    removed: int
    """Passages of earlier versions of changed files, and of pruned files."""
    passages: int
    """Passages in the index now."""
    problems: tuple[Problem, ...]
    """Files and folders that could not be read, or only in part."""
    vanished: tuple[str, ...]
    """Indexed files under the given paths that no longer exist; gone from the index if pruned."""


@dataclass(frozen=True)
class IndexProgress:
    """The progress of an indexing run."""

    done: float
    """Fraction of the bytes of all files, in [0, 1]."""
    source: str
    passages: int
    """Passages handled in this run, new or not."""
    added: int


class _Source(NamedTuple):
    """A file that is being indexed."""

    name: str
    fingerprint: str


class _PendingPassage(NamedTuple):
    """A passage that is not written yet."""

    source: _Source
    passage: Document
    bytes: float
    """Its share of the file's size, for the progress."""


def index_paths(
    paths: Iterable[str | Path],
    index: Index,
    *,
    chunk_words: int = CHUNK_WORDS,
    chunk_overlap: int = CHUNK_OVERLAP,
    batch_size: int = BATCH_SIZE,
    max_bytes: int = MAX_BYTES,
    prune: bool = False,
    follow_links: bool = False,
    on_progress: Callable[[IndexProgress], None] = lambda progress: None,
) -> IndexReport:
    """Put files, and the files in folders, into ``index``.

    Reads the kinds in `files.KINDS`, also as .gz. Passages carry ``source`` (absolute path),
    ``title``, ``chunk`` (place in the file, from 0), ``page`` for PDF and slides, and short fields
    of JSON rows.

    Args:
        chunk_words: Longest passage, in words; see `chunking.chunk`.
        chunk_overlap: Words that a passage may repeat of the one before.
        batch_size: Passages embedded and written at once.
        max_bytes: Largest file, in bytes after gzip, a quarter of it for kinds that are read whole
            (see `loading.WHOLE_FRACTION`); larger ones are a problem in the report.
        prune: Remove the passages of files under ``paths`` that no longer exist.
        follow_links: Follow links out of ``paths`` too; otherwise each is a problem in the report.
        on_progress: Called after each batch, and after each file that adds no passages.

    Raises:
        IndexBusy: another process is indexing into the same folder.
        DiskFull, ReadOnlyIndex, UnreadableIndex: the folder is at fault; see `index_errors`.
        ModelFailed: the index's embeddings raised, or gave no usable vectors.
        ValueError: not 0 <= chunk_overlap < chunk_words.
    """
    next(chunk("", chunk_words, chunk_overlap), None)  # bad sizes fail before anything is read
    paths = list(paths)
    with index_errors(index.path, sqlite3.Error), closing(FileRecords(index.path)) as records:
        # A passage of two files, lost as one of them was written, is the other's to write too.
        records.reopen(index.begun())
        found = list(find_files(paths, follow_links=follow_links))
        files = [file for file in found if isinstance(file, FoundFile)]
        run = _IndexingRun(index, batch_size, records, found, on_progress)
        for file in files:
            run.index_file(file, chunk_words, chunk_overlap, max_bytes)
        run.flush()
        return run.report(paths, {file.name for file in files}, index, prune=prune)


class IndexingRun(ABC):
    """What a run counts and reports, whoever writes the passages."""

    def __init__(
        self,
        records: FileRecords,
        found: Iterable[FoundFile | Problem],
        on_progress: Callable[[IndexProgress], None],
    ) -> None:
        self.records = records
        self.on_progress = on_progress
        found = list(found)
        self.problems = [problem for problem in found if isinstance(problem, Problem)]
        self.files = self.unchanged = self.passages = self.added = self.removed = 0
        self._size = sum(file.size() for file in found if isinstance(file, FoundFile))
        self._done = 0.0  # bytes

    def report(
        self, paths: Iterable[str | Path], found: set[str], index: Sized, *, prune: bool
    ) -> IndexReport:
        """The report of a run that found these files and wrote into ``index``; with ``prune``, the
        passages of files that have vanished are removed first."""
        vanished = vanished_files(self.records, paths, found)
        if prune:
            for source in vanished:
                self._remove(source)
        return IndexReport(
            files=self.files,
            unchanged=self.unchanged,
            added=self.added,
            removed=self.removed,
            passages=len(index),
            problems=tuple(self.problems),
            vanished=tuple(vanished),
        )

    def _remove(self, source: str) -> None:
        """Remove the passages that only ``source`` holds."""
        with self.records.transaction():
            stale = self.records.stale(source)
            self.records.forget(source)
            self._delete(stale)

    @abstractmethod
    def _delete(self, ids: Sequence[str]) -> None:
        """Take passages out of the index."""

    def _advance(self, size: float, source: str) -> None:
        self._done += size
        done = min(1.0, self._done / max(1, self._size))
        self.on_progress(IndexProgress(done, source, self.passages, self.added))

    def _fault(self, source: str, fault: str | None) -> None:
        if fault:
            self.problems.append(Problem(source, fault, partly=True))


class _IndexingRun(IndexingRun):
    """One run in this process, with the passages that wait to be written."""

    def __init__(
        self,
        index: Index,
        batch_size: int,
        records: FileRecords,
        found: Iterable[FoundFile | Problem],
        on_progress: Callable[[IndexProgress], None],
    ) -> None:
        super().__init__(records, found, on_progress)
        self.index = index
        self.batch_size = batch_size
        # Small files share a batch: a file is finished only once the batch is written.
        self._pending: list[_PendingPassage] = []
        self._read_files: list[tuple[_Source, str | None]] = []

    def index_file(self, found: FoundFile, words: int, overlap: int, max_bytes: int) -> None:
        """Add one file; passages that do not fill a batch wait for the next file or `flush`."""
        size, taken = found.size(), 0.0
        try:
            with open_file(found, max_bytes) as file:
                source = _Source(found.name, fingerprint(file, words, overlap))
                if self.records.finished(source.name) == source.fingerprint:
                    self.unchanged += 1
                    self._fault(source.name, self.records.fault(source.name))
                    self._advance(size, source.name)
                    return
                for passage, share in cut(file, source.name, words, overlap):
                    taken += size * share
                    self._pending.append(_PendingPassage(source, passage, size * share))
                    if len(self._pending) == self.batch_size:
                        self.flush()
        except UnreadableFile as error:
            self.problems.append(Problem(found.name, str(error)))
            self._advance(size - taken, found.name)
            return
        fault = "; ".join(file.faults) or None
        self._read_files.append((source, fault))
        self.files += 1
        self._fault(source.name, fault)

    def flush(self) -> None:
        """Write the waiting passages, then finish the files that end with them."""
        # Recorded first: a run killed in between leaves nothing in the index that no file owns.
        self.records.record(
            (waiting.source.name, passage_id(waiting.passage), waiting.source.fingerprint)
            for waiting in self._pending
        )
        passages = [waiting.passage for waiting in self._pending]
        self.added += self.index.add(passages, batch_size=self.batch_size)
        self.passages += len(passages)
        # One transaction for many files: each costs a wait for the disk.
        with self.records.transaction():
            stale: list[str] = []
            for source, fault in self._read_files:
                stale += self.records.stale(*source)
                self.records.finish(*source, fault)
            self._delete(stale)
        if self._pending:
            done = sum(waiting.bytes for waiting in self._pending)
            self._advance(done, self._pending[-1].source.name)
        self._pending.clear()
        self._read_files.clear()

    def _delete(self, ids: Sequence[str]) -> None:
        self.index.delete(ids)
        self.removed += len(ids)


def fingerprint(file: OpenFile, words: int, overlap: int) -> str:
    """What the passages of a file follow from: its content and how it is cut."""
    return f"{file.digest}:{words}:{overlap}"


def cut(file: OpenFile, source: str, words: int, overlap: int) -> Iterator[tuple[Document, float]]:
    """The passages of a file, storable, each with its share of the file in [0, 1].

    Raises:
        UnreadableFile: see `OpenFile.documents`.
    """
    taken, number = 0.0, 0
    for document in file.documents():
        texts = list(chunk(document.page_content, words, overlap))
        share = (file.done - taken) / max(1, len(texts))
        taken = file.done
        for text in texts:
            metadata = {**document.metadata, "source": source, "chunk": number}
            yield storable(Document(text, metadata=metadata)), share
            number += 1


def vanished_files(
    records: FileRecords, paths: Iterable[str | Path], present: set[str]
) -> list[str]:
    """Recorded files under ``paths`` that are not ``present`` and no longer exist."""
    roots = [source_name(Path(path)) for path in paths]
    return [
        source
        for source in records.sources()
        if source not in present
        and any(Path(source).is_relative_to(root) for root in roots)
        and _is_gone(source)
    ]


def _is_gone(source: str) -> bool:
    try:
        os.stat(source)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # there, but out of reach: no reason to drop what is indexed
        return False
    return False
