"""Passages found by their words: no model, no GPU, nothing to download."""

import asyncio
import json
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from selfcorrect_rag.extras import require
from selfcorrect_rag.search.index import BM25_FILE, Index, UnreadableIndex, indexed_text

_SCHEMA = """
CREATE TABLE IF NOT EXISTS passages (
    id TEXT PRIMARY KEY, text TEXT NOT NULL, metadata TEXT NOT NULL
) WITHOUT ROWID
"""


class _Scorer(NamedTuple):
    version: int
    ids: list[str]
    """In the order of the scores."""
    bm25: Any
    """None where there are no words to score."""


class BM25Index(Index):
    """Passages in an SQLite file at ``path``, scored by bm25s (Lucene's BM25, k1 1.5, b 0.75).

    Words are runs of two or more letters and digits in lower case, English stop words left out;
    nothing is stemmed. ``score`` of a found passage is above 0 without an upper bound: passages
    that share no word with the query are not found.

    Writes are cheap; scores are computed at the first search after one, and kept beside the file
    for the next process.

    Raises:
        UnreadableIndex: the folder does not open as a BM25 index.
        MissingExtra: at the first search: bm25s is not installed.
    """

    embedder = "bm25"

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._scorer: _Scorer | None = None
        with self._database() as database:
            database.execute(_SCHEMA)

    def search(self, query: str, k: int = 5) -> list[Document]:
        scorer = self._current_scorer()
        if scorer.bm25 is None:
            return []
        positions, scores = scorer.bm25.retrieve(
            _tokenize([query]),
            k=min(k, len(scorer.ids)),
            show_progress=False,
            backend_selection="numpy",
        )
        scored = {
            scorer.ids[position]: float(score)
            for position, score in zip(positions[0], scores[0], strict=True)
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
            before = database.execute("SELECT count(*) FROM passages").fetchone()[0]
            database.executemany("INSERT OR REPLACE INTO passages VALUES (?, ?, ?)", rows)
            after = database.execute("SELECT count(*) FROM passages").fetchone()[0]
            if after > before:
                _next_version(database)
        return int(after - before)

    def _remove(self, ids: Sequence[str]) -> None:
        with self._database() as database:
            database.execute(f"DELETE FROM passages WHERE id IN ({_marks(ids)})", list(ids))
            _next_version(database)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own for each call, which any thread may make; one transaction."""
        database = sqlite3.connect(self.path / BM25_FILE)
        try:
            with database:
                yield database
        except sqlite3.DatabaseError as error:
            raise UnreadableIndex(
                f"{self.path} does not open as a BM25 index ({error}): index into a new folder"
            ) from error
        finally:
            database.close()

    def _current_scorer(self) -> _Scorer:
        with self._lock, self._database() as database:
            # Reading starts a transaction: version and passages belong together.
            database.execute("BEGIN")
            version = int(database.execute("PRAGMA user_version").fetchone()[0])
            if self._scorer is None or self._scorer.version != version:
                rows = database.execute("SELECT id, text, metadata FROM passages ORDER BY id")
                self._scorer = self._kept_scorer(version) or self._new_scorer(version, rows)
            return self._scorer

    def _kept_scorer(self, version: int) -> _Scorer | None:
        folder = self._scorer_folder(version)
        try:
            ids = json.loads((folder / "ids.json").read_text())
            return _Scorer(version, ids, require("bm25s", "bm25").BM25.load(folder))
        except (OSError, ValueError):
            return None

    def _new_scorer(self, version: int, rows: Any) -> _Scorer:
        ids: list[str] = []
        texts: list[str] = []
        for id_, text, metadata in rows:
            ids.append(id_)
            texts.append(indexed_text(Document(text, metadata=json.loads(metadata))))
        tokens = _tokenize(texts)
        if not any(tokens):
            return _Scorer(version, ids, None)
        bm25 = require("bm25s", "bm25").BM25()
        bm25.index(tokens, show_progress=False)
        scorer = _Scorer(version, ids, bm25)
        with suppress(OSError):  # a folder that cannot be written is no reason not to search it
            self._keep(scorer)
        return scorer

    def _keep(self, scorer: _Scorer) -> None:
        """Write the scores whole or not at all, and drop those of earlier versions."""
        folder = Path(tempfile.mkdtemp(prefix="new-", dir=self.path))
        try:
            scorer.bm25.save(folder)
            (folder / "ids.json").write_text(json.dumps(scorer.ids))
            os.rename(folder, self._scorer_folder(scorer.version))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for earlier in self.path.glob("scores-*"):
            if earlier != self._scorer_folder(scorer.version):
                shutil.rmtree(earlier, ignore_errors=True)

    def _scorer_folder(self, version: int) -> Path:
        return self.path / f"scores-{version}"


def _tokenize(texts: list[str]) -> list[list[str]]:
    tokens: list[list[str]] = require("bm25s", "bm25").tokenize(
        texts, stopwords="en", return_ids=False, show_progress=False
    )
    return tokens


def _marks(values: Any) -> str:
    return ", ".join("?" * len(values))


def _next_version(database: sqlite3.Connection) -> None:
    version = database.execute("PRAGMA user_version").fetchone()[0]
    database.execute(f"PRAGMA user_version = {version + 1}")
