"""Passages found by their words with BM25: no model, no GPU, nothing to download.

Scores are computed on disk, so that a corpus need not fit into memory: the words of each passage
are counted and spilled to a file, then sorted by word, a block at a time. The files are those that
bm25s searches.
"""

import json
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.errors import MissingExtra, require
from selfcorrect_rag.search.index import (
    BM25_FILE,
    Index,
    index_errors,
    indexed_text,
    transaction,
)

_IDS = "ids"
_DATA, _INDICES, _STARTS = (f"{name}.csc.index.npy" for name in ("data", "indices", "indptr"))
_VOCABULARY, _PARAMETERS = "vocab.index.json", "params.index.json"
_ID_LENGTH = 32
_TEXTS = 1000
"""Texts tokenised at once."""
_BLOCK = 2**20
"""Counts sorted at once, which takes some 100 MB."""


class Scores(NamedTuple):
    """The BM25 scores of all passages; the arrays stay on the disk."""

    ids: Any
    """Passage ids as bytes, in the order of the scores."""
    bm25: Any
    """``bm25s.BM25``; None where there are no words to score."""


class _TermCounts(NamedTuple):
    """How often each passage has each of its terms, in a file of pairs (term, count)."""

    path: Path
    vocabulary: dict[str, int]
    document_frequency: "array[int]"
    """Number of passages that contain each term."""
    lengths: "array[int]"
    """Number of words of each passage."""
    unique: "array[int]"
    """Number of distinct words of each passage."""


def tokenize(texts: list[str]) -> list[list[str]]:
    """The words of texts: runs of two or more letters and digits, no English stop words."""
    tokens: list[list[str]] = require("bm25s", "bm25").tokenize(
        texts, stopwords="en", return_ids=False, show_progress=False
    )
    return [[word for word in words if word] for words in tokens]


def load_scores(folder: Path) -> Scores:
    """The scores that `write_scores` wrote.

    Raises:
        OSError, ValueError: it is not there, or not whole.
    """
    numpy = require("numpy", "bm25")
    passages = json.loads((folder / _PARAMETERS).read_text())["num_docs"]
    if not passages:
        return Scores([], None)
    ids = numpy.memmap(folder / _IDS, dtype=f"S{_ID_LENGTH}", mode="r")
    if len(ids) != passages:
        raise ValueError(f"{len(ids)} ids for the scores of {passages} passages")
    return Scores(ids, require("bm25s", "bm25").BM25.load(folder, mmap=True))


def write_scores(folder: Path, passages: Iterable[tuple[str, str]]) -> None:
    """Write Lucene's BM25 of ``passages``, given as (id, text), into an empty folder.

    Ids are ASCII of at most 32 characters.
    """
    numpy = require("numpy", "bm25")
    bm25 = require("bm25s", "bm25").BM25()
    counts = _count(folder, passages)
    size = sum(counts.document_frequency)
    if not size:
        (folder / _PARAMETERS).write_text(json.dumps({"num_docs": 0}))
        return
    frequency, lengths = numpy.array(counts.document_frequency), numpy.array(counts.lengths)
    idf = numpy.log(1 + (len(lengths) - frequency + 0.5) / (frequency + 0.5))
    length_norm = bm25.k1 * (1 - bm25.b + bm25.b * lengths / lengths.mean())
    ends = numpy.cumsum(counts.unique)
    starts = numpy.concatenate([[0], numpy.cumsum(frequency)])
    numpy.save(folder / _STARTS, starts)
    for name, kind in ((_DATA, "float32"), (_INDICES, "int32")):
        numpy.lib.format.open_memmap(folder / name, "w+", kind, (size,))
    free = starts[:-1].copy()  # where the next score of a term goes
    with counts.path.open("rb") as file:
        for begin in range(0, size, _BLOCK):
            pairs = numpy.fromfile(file, "int32", 2 * _BLOCK).reshape(-1, 2)
            passage = numpy.searchsorted(ends, numpy.arange(begin, begin + len(pairs)), "right")
            order = numpy.argsort(pairs[:, 0], kind="stable")
            (term, count), passage = pairs[order].T, passage[order]
            terms, first, times = numpy.unique(term, return_index=True, return_counts=True)
            positions = free[term] + numpy.arange(len(term)) - numpy.repeat(first, times)
            free[terms] += times
            # Opened for each block: a mapped file counts as memory until it is closed.
            numpy.load(folder / _INDICES, "r+")[positions] = passage
            scores = idf[term] * count / (count + length_norm[passage])
            numpy.load(folder / _DATA, "r+")[positions] = scores
    counts.path.unlink()
    (folder / _VOCABULARY).write_text(json.dumps(counts.vocabulary))
    (folder / _PARAMETERS).write_text(json.dumps({"num_docs": len(lengths)}))


def _count(folder: Path, passages: Iterable[tuple[str, str]]) -> _TermCounts:
    counts = _TermCounts(folder / "counts", {}, array("q"), array("q"), array("q"))
    rest = iter(passages)
    with (folder / _IDS).open("wb") as id_file, counts.path.open("wb") as file:
        while batch := list(islice(rest, _TEXTS)):
            ids, texts = zip(*batch, strict=True)
            id_file.writelines(id_.encode().ljust(_ID_LENGTH, b"\0") for id_ in ids)
            for tokens in tokenize(list(texts)):
                pairs = array("i")
                for token, times in Counter(tokens).items():
                    term = counts.vocabulary.setdefault(token, len(counts.vocabulary))
                    if term == len(counts.document_frequency):
                        counts.document_frequency.append(0)
                    counts.document_frequency[term] += 1
                    pairs.extend((term, times))
                file.write(pairs.tobytes())
                counts.lengths.append(len(tokens))
                counts.unique.append(len(pairs) // 2)
    return counts


_SCHEMA = """
CREATE TABLE IF NOT EXISTS passages (
    id TEXT PRIMARY KEY, text TEXT NOT NULL, metadata TEXT NOT NULL
) WITHOUT ROWID
"""

_LEFT_AFTER = 24 * 60 * 60
"""Seconds after which files of an unfinished computation were left by a killed process."""


class BM25Index(Index):
    """Passages in an SQLite file at ``path``, scored by bm25s (Lucene's BM25, k1 1.5, b 0.75).

    Words are runs of two or more letters and digits in lower case, English stop words left out;
    nothing is stemmed. ``score`` of a found passage is above 0 without an upper bound: passages
    that share no word with the query are not found.

    Writes are cheap; scores are computed at the first search after one, on the disk, and kept
    beside the file for the next process.

    Raises:
        UnreadableIndex, IndexBusy, DiskFull, ReadOnlyIndex: at any call; see `index_errors`.
        MissingExtra: at the first search: bm25s is not installed.
    """

    embedder = "bm25"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with index_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._scores: tuple[int, Scores] | None = None  # and their version
        with self._database() as database:
            database.execute(_SCHEMA)

    def search(self, query: str, k: int = 5) -> list[Document]:
        scores, tokens = self._current_scores(), tokenize([query])
        if scores.bm25 is None or not tokens[0]:
            return []
        positions, found = scores.bm25.retrieve(
            tokens, k=min(k, len(scores.ids)), show_progress=False, backend_selection="numpy"
        )
        scored = {
            scores.ids[position].decode(): float(score)
            for position, score in zip(positions[0], found[0], strict=True)
            if score > 0
        }
        with self._database() as database:
            rows = database.execute(
                f"SELECT id, text, metadata FROM passages WHERE id IN ({_placeholders(scored)})",
                list(scored),
            )
            documents = [
                Document(text, id=id_, metadata={**json.loads(metadata), "score": scored[id_]})
                for id_, text, metadata in rows
            ]
        return sorted(documents, key=lambda document: -scored[str(document.id)])

    def ids(self) -> set[str]:
        with self._database() as database:
            return {id_ for (id_,) in database.execute("SELECT id FROM passages")}

    def __len__(self) -> int:
        with self._database() as database:
            return int(database.execute("SELECT count(*) FROM passages").fetchone()[0])

    def _write(self, passages: dict[str, Document]) -> int:
        rows = [
            (id_, document.page_content, json.dumps(document.metadata))
            for id_, document in passages.items()
        ]
        with self._database() as database:
            # Counting all passages would read them all, for each batch.
            known = database.execute(
                f"SELECT count(*) FROM passages WHERE id IN ({_placeholders(passages)})",
                list(passages),
            ).fetchone()[0]
            database.executemany("INSERT OR REPLACE INTO passages VALUES (?, ?, ?)", rows)
            if known < len(passages):
                _next_version(database)
        return len(passages) - int(known)

    def _remove(self, ids: Sequence[str]) -> None:
        with self._database() as database:
            database.execute(f"DELETE FROM passages WHERE id IN ({_placeholders(ids)})", list(ids))
            _next_version(database)

    def _database(self) -> AbstractContextManager[sqlite3.Connection]:
        return transaction(self.path, BM25_FILE)

    def _current_scores(self) -> Scores:
        with self._lock:
            # Read first: passages added meanwhile make a new version, and the next search computes
            # new scores. One transaction for all of it would block writers for minutes.
            version = self._version()
            if self._scores is None or self._scores[0] != version:
                self._scores = version, self._stored_scores(version) or self._new_scores(version)
            return self._scores[1]

    def _version(self) -> int:
        with self._database() as database:
            return int(database.execute("PRAGMA user_version").fetchone()[0])

    def _passages(self) -> Iterator[tuple[str, str]]:
        """The id and the indexed text of each passage."""
        query = "SELECT id, text, metadata FROM passages WHERE id > ? ORDER BY id LIMIT 1000"
        last = ""
        while True:
            with self._database() as database:
                rows = database.execute(query, (last,)).fetchall()
            if not rows:
                return
            for id_, text, metadata in rows:
                yield id_, indexed_text(Document(text, metadata=json.loads(metadata)))
            last = rows[-1][0]

    def _stored_scores(self, version: int) -> Scores | None:
        try:
            return load_scores(self._scores_folder(version))
        except MissingExtra:
            raise
        except Exception:  # broken scores are computed again from the passages
            return None

    def _new_scores(self, version: int) -> Scores:
        for left in self.path.glob("new-*"):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _LEFT_AFTER:
                    shutil.rmtree(left, ignore_errors=True)
        with self._scratch() as name, index_errors(self.path, OSError):
            write_scores(Path(name), self._passages())
            # Loaded before other processes see the folder and may delete it: mapped files outlive
            # their names.
            scores = load_scores(Path(name))
            self._store(Path(name), version)
        return scores

    def _scratch(self) -> "tempfile.TemporaryDirectory[str]":
        try:
            return tempfile.TemporaryDirectory(
                prefix="new-", dir=self.path, ignore_cleanup_errors=True
            )
        except OSError:  # a read-only index can still be searched
            return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

    def _store(self, folder: Path, version: int) -> None:
        """Make ``folder`` the scores of ``version``, unless passages changed meanwhile: all scores
        of a version are the same, whichever process computed them."""
        listed = list(self.path.glob("scores-*"))  # before the version is read: none is newer
        if self._version() != version:
            return
        stored = self._scores_folder(version)
        if stored in listed and self._stored_scores(version) is None:
            shutil.rmtree(stored, ignore_errors=True)
        with suppress(OSError):  # another process was first
            os.rename(folder, stored)
        for earlier in listed:
            if earlier != stored:
                shutil.rmtree(earlier, ignore_errors=True)

    def _scores_folder(self, version: int) -> Path:
        return self.path / f"scores-{version}"


def _placeholders(values: Any) -> str:
    return ", ".join("?" * len(values))


def _next_version(database: sqlite3.Connection) -> None:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    database.execute(f"PRAGMA user_version = {version + 1}")
