"""Passages found by their words: no model, no GPU, nothing to download."""

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.errors import MissingExtra
from selfcorrect_rag.search.bm25_scores import Scores, load_scores, tokenize, write_scores
from selfcorrect_rag.search.index import BM25_FILE, Index, indexed_text
from selfcorrect_rag.search.index_faults import named_faults

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
        UnreadableIndex, IndexBusy, DiskFull, ReadOnlyIndex: at any call; see `index_faults`.
        MissingExtra: at the first search: bm25s is not installed.
    """

    embedder = "bm25"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with named_faults(self.path):
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
        with named_faults(self.path, sqlite3.Error):
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
        with self._scratch() as name, named_faults(self.path, OSError):
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
