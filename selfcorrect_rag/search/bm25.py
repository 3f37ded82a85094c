"""Passages found by their words with BM25: no model, no GPU, nothing to download.

Scores of all passages are computed on the disk, so that no corpus has to fit into memory: the words
of each passage are counted and spilled to a file, and sorted by word from there, a block at a time.
The files are those that bm25s searches.
"""

import asyncio
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
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.errors import MissingExtra, require
from selfcorrect_rag.search.index import BM25_FILE, Index, index_errors, indexed_text

_IDS = "ids"
_DATA, _INDICES, _STARTS = (f"{name}.csc.index.npy" for name in ("data", "indices", "indptr"))
_VOCABULARY, _PARAMETERS = "vocab.index.json", "params.index.json"
_ID_LENGTH = 32
_TEXTS = 1000
"""Tokenised at once."""
_BLOCK = 2**20
"""Counts sorted at once, which takes some 100 MB."""


class Scores(NamedTuple):
    """What a search needs; its arrays stay on the disk."""

    ids: Any
    """As bytes, in the order of the scores."""
    bm25: Any
    """None where there are no words to score."""


class _Counts(NamedTuple):
    """How often each passage has each of its words, in a file of pairs (word, count)."""

    path: Path
    vocabulary: dict[str, int]
    holders: "array[int]"
    """Passages that have a word, by word."""
    words: "array[int]"
    """All words of a passage, by passage."""
    different: "array[int]"
    """Different words of a passage, by passage."""


def tokenize(texts: list[str]) -> list[list[str]]:
    """The words of texts: runs of two or more letters and digits, no English stop words."""
    tokens: list[list[str]] = require("bm25s", "bm25").tokenize(
        texts, stopwords="en", return_ids=False, show_progress=False
    )
    return [[word for word in words if word] for words in tokens]


def load_scores(folder: Path) -> Scores:
    """What `write_scores` wrote.

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
    size = sum(counts.holders)
    if not size:
        _write_parameters(folder, 0)
        return
    holders, words = numpy.array(counts.holders), numpy.array(counts.words)
    rarity = numpy.log(1 + (len(words) - holders + 0.5) / (holders + 0.5))
    damping = bm25.k1 * (1 - bm25.b + bm25.b * words / words.mean())
    ends = numpy.cumsum(counts.different)
    starts = numpy.concatenate([[0], numpy.cumsum(holders)])
    numpy.save(folder / _STARTS, starts)
    for name, kind in ((_DATA, "float32"), (_INDICES, "int32")):
        numpy.lib.format.open_memmap(folder / name, "w+", kind, (size,))
    free = starts[:-1].copy()  # where the next score of a word goes
    with counts.path.open("rb") as file:
        for begin in range(0, size, _BLOCK):
            pairs = numpy.fromfile(file, "int32", 2 * _BLOCK).reshape(-1, 2)
            holder = numpy.searchsorted(ends, numpy.arange(begin, begin + len(pairs)), "right")
            order = numpy.argsort(pairs[:, 0], kind="stable")
            (word, count), holder = pairs[order].T, holder[order]
            found, first, times = numpy.unique(word, return_index=True, return_counts=True)
            places = free[word] + numpy.arange(len(word)) - numpy.repeat(first, times)
            free[found] += times
            # Opened for each block: what is mapped counts as memory until it is closed.
            numpy.load(folder / _INDICES, "r+")[places] = holder
            scores = rarity[word] * count / (count + damping[holder])
            numpy.load(folder / _DATA, "r+")[places] = scores
    counts.path.unlink()
    (folder / _VOCABULARY).write_text(json.dumps(counts.vocabulary))
    _write_parameters(folder, len(words))


def _write_parameters(folder: Path, passages: int) -> None:
    (folder / _PARAMETERS).write_text(json.dumps({"num_docs": passages}))


def _count(folder: Path, passages: Iterable[tuple[str, str]]) -> _Counts:
    counts = _Counts(folder / "counts", {}, array("q"), array("q"), array("q"))
    with (folder / _IDS).open("wb") as ids, counts.path.open("wb") as file:
        for id_, tokens in _tokenized(passages):
            pairs = array("i")
            for token, times in Counter(tokens).items():
                word = counts.vocabulary.setdefault(token, len(counts.vocabulary))
                if word == len(counts.holders):
                    counts.holders.append(0)
                counts.holders[word] += 1
                pairs.extend((word, times))
            file.write(pairs.tobytes())
            counts.words.append(len(tokens))
            counts.different.append(len(pairs) // 2)
            ids.write(id_.encode().ljust(_ID_LENGTH, b"\0"))
    return counts


def _tokenized(passages: Iterable[tuple[str, str]]) -> Iterator[tuple[str, list[str]]]:
    rest = iter(passages)
    while batch := list(islice(rest, _TEXTS)):
        ids, texts = zip(*batch, strict=True)
        yield from zip(ids, tokenize(list(texts)), strict=True)


_SCHEMA = """
CREATE TABLE IF NOT EXISTS passages (
    id TEXT PRIMARY KEY, text TEXT NOT NULL, metadata TEXT NOT NULL
) WITHOUT ROWID
"""

_A_DAY = 24 * 60 * 60
"""Seconds, longer than scores take."""


class _Scorer(NamedTuple):
    version: int
    scores: Scores


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
        self._scorer: _Scorer | None = None
        with self._database() as database:
            database.execute(_SCHEMA)

    def search(self, query: str, k: int = 5) -> list[Document]:
        scores, tokens = self._current_scorer().scores, tokenize([query])
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
                f"SELECT id, text, metadata FROM passages WHERE id IN ({_marks(scored)})",
                list(scored),
            )
            documents = [
                Document(text, id=id_, metadata={**json.loads(metadata), "score": scored[id_]})
                for id_, text, metadata in rows
            ]
        return sorted(documents, key=lambda document: -scored[str(document.id)])

    async def asearch(self, query: str, k: int = 5) -> list[Document]:
        return await asyncio.to_thread(self.search, query, k)

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
                f"SELECT count(*) FROM passages WHERE id IN ({_marks(passages)})", list(passages)
            ).fetchone()[0]
            database.executemany("INSERT OR REPLACE INTO passages VALUES (?, ?, ?)", rows)
            if known < len(passages):
                _next_version(database)
        return len(passages) - int(known)

    def _remove(self, ids: Sequence[str]) -> None:
        with self._database() as database:
            database.execute(f"DELETE FROM passages WHERE id IN ({_marks(ids)})", list(ids))
            _next_version(database)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own for each call, which any thread may make; one transaction."""
        with index_errors(self.path, sqlite3.Error):
            database = sqlite3.connect(self.path / BM25_FILE)
            try:
                with database:
                    yield database
            finally:
                database.close()

    def _current_scorer(self) -> _Scorer:
        with self._lock:
            # Read first: what is added meanwhile makes a new version, and the next search new
            # scores. A transaction for all of it would keep writers out for minutes.
            version = self._version()
            if self._scorer is None or self._scorer.version != version:
                self._scorer = self._kept_scorer(version) or self._new_scorer(version)
            return self._scorer

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

    def _kept_scorer(self, version: int) -> _Scorer | None:
        try:
            return _Scorer(version, load_scores(self._scorer_folder(version)))
        except MissingExtra:
            raise
        except Exception:  # whatever is wrong with scores, there are the passages
            return None

    def _new_scorer(self, version: int) -> _Scorer:
        self._sweep()
        with self._scratch() as name, index_errors(self.path, OSError):
            write_scores(Path(name), self._passages())
            # Loaded before other processes see the folder and may drop it; what is mapped into
            # memory outlives its name.
            scores = load_scores(Path(name))
            self._keep(Path(name), version)
        return _Scorer(version, scores)

    def _scratch(self) -> "tempfile.TemporaryDirectory[str]":
        try:
            return tempfile.TemporaryDirectory(
                prefix="new-", dir=self.path, ignore_cleanup_errors=True
            )
        except OSError:  # an index that may not be written to can be searched all the same
            return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)

    def _keep(self, folder: Path, version: int) -> None:
        """Make ``folder`` the scores of ``version``, unless passages changed meanwhile.

        So all scores of a version are the same, whichever process computed them.
        """
        listed = list(self.path.glob("scores-*"))  # before the version is read: none is newer
        if self._version() != version:
            return
        kept = self._scorer_folder(version)
        if kept in listed and self._kept_scorer(version) is None:
            shutil.rmtree(kept, ignore_errors=True)
        with suppress(OSError):  # another process was first
            os.rename(folder, kept)
        for earlier in listed:
            if earlier != kept:
                shutil.rmtree(earlier, ignore_errors=True)

    def _sweep(self) -> None:
        """Drop what a process that was killed while it computed scores has left."""
        for left in self.path.glob("new-*"):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _A_DAY:
                    shutil.rmtree(left, ignore_errors=True)

    def _scorer_folder(self, version: int) -> Path:
        return self.path / f"scores-{version}"


def _marks(values: Any) -> str:
    return ", ".join("?" * len(values))


def _next_version(database: sqlite3.Connection) -> None:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    database.execute(f"PRAGMA user_version = {version + 1}")
