"""An index folder: passages in SQLite, their vectors in Chroma, their words in bm25s.

SQLite is what counts: Chroma and bm25s only propose ids. A batch goes into Chroma first and is
committed to SQLite last, so that a killed run leaves nothing half done. A version number in SQLite
tells indexes that other processes hold open that something has changed.
"""

import json
import math
import os
import sqlite3
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self, cast

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever

from selfcorrect_rag.errors import ModelFailed, require, wrap_errors
from selfcorrect_rag.intake import valid
from selfcorrect_rag.search.documents import content_id, indexed_text, passage_id, storable
from selfcorrect_rag.search.filters import Filter, matches, normal
from selfcorrect_rag.search.folder import (
    INDEX_FILE,
    OTHER_VERSION,
    EmbedderMismatch,
    NoIndex,
    index_errors,
    make_folder,
    make_private,
)
from selfcorrect_rag.search.ranking import count_words, fuse, load_words, spread, tokenize

Ranking = Literal["hybrid", "dense", "bm25"]
BATCH_SIZE = 128
"""Passages embedded and written at once; a killed run loses at most one batch."""
_GRAPH = {"space": "cosine", "max_neighbors": 32, "ef_construction": 200, "ef_search": 200}
_LAYOUT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    source TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, fault TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS passages (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, content TEXT NOT NULL, text TEXT NOT NULL,
    metadata TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS sources ON passages (source);
CREATE INDEX IF NOT EXISTS contents ON passages (content);
"""
_AMONG = "FROM passages WHERE id IN (SELECT value FROM json_each(?))"
_clients: dict[str, tuple[int, Any]] = {}
"""One Chroma client a folder with the version it was opened at: Chroma shares what a process has
open, and does not see what others write."""
_clients_lock = threading.RLock()


def _forget_clients() -> None:
    """Open Chroma anew in a forked process, which has none of its threads."""
    global _clients_lock
    _clients_lock = threading.RLock()
    _clients.clear()
    if shared := sys.modules.get("chromadb.api.shared_system_client"):
        shared.SharedSystemClient.clear_system_cache()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_clients)


class Index:
    """Passages in a folder, found by their words and by embeddings.

    Args:
        path: The folder; it is made if it does not exist, for its user only.
        embeddings: LangChain embeddings; None takes the embedded reader's, or none if the index was
            made without; "bm25" finds by words alone.

    Raises:
        NoIndex: the folder holds an index of an earlier version.
        EmbedderMismatch: the index was made with other embeddings.
        UnreadableIndex: the folder holds other files, or cannot be read.
        IndexBusy, ReadOnlyIndex, DiskFull: at any call.
        MissingExtra: the extra ``demo`` is not installed.
    """

    def __init__(
        self, path: str | Path, embeddings: Embeddings | Literal["bm25"] | None = None
    ) -> None:
        self.path, self._lock = Path(path), threading.RLock()
        self._words: tuple[int, list[str], Any] | None = None
        require("bm25s", "demo")
        with index_errors(self.path):
            make_folder(self.path)
            with self._database() as database:
                database.executescript(_SCHEMA)
                known = dict(database.execute("SELECT key, value FROM meta"))
                if embeddings == "bm25" or (embeddings is None and known.get("embedder") == "bm25"):
                    self.embeddings = None
                else:
                    self.embeddings = embeddings or _default_embeddings()
                name = embedder_name(self.embeddings)
                if "embedder" not in known:  # a read-only index can be searched
                    rows = [("embedder", name), ("layout", _LAYOUT), ("version", 0)]
                    database.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", rows)
            make_private(self.path)
        if known.get("layout", _LAYOUT) != _LAYOUT:
            raise NoIndex(OTHER_VERSION.format(self.path))
        if known.get("embedder", name) != name:
            raise EmbedderMismatch(
                f"{self.path} was indexed with {known['embedder']}, not with {name}: "
                "open it with those embeddings or index into a new folder"
            )

    def search(
        self, query: str, k: int = 5, *, filter: Filter | None = None, ranking: Ranking = "hybrid"
    ) -> list[Document]:
        """Return at most ``k`` passages, best first, as the index is now.

        Passages with the same title and text are one, with all their ``sources``; of one page or
        section more than two come only after those of other places. ``score`` is the fused rank, 1
        for the best.

        Args:
            filter: Conditions on metadata in Chroma's language: ``{"owner": "ada"}``,
                ``{"year": {"$gte": 2024}}``, ``{"$or": [...]}``.

        Raises:
            BadFilter: the filter is not in that language.
            ModelFailed: the embeddings raised.
        """
        where = None if filter is None else normal(filter)
        query, vector = valid(query), None
        if self.embeddings is not None and ranking != "bm25":
            with wrap_errors(ModelFailed, "the embeddings"):
                vector = self.embeddings.embed_query(query)
        with index_errors(self.path), self._lock:
            total, depth = self._one("SELECT count(*) FROM passages"), max(50, 4 * k)
            while total:
                rankings = []
                if vector is not None:
                    rankings.append(self._nearest(vector, depth, where))
                if ranking != "dense":
                    rankings.append(self._best_words(query, depth))
                found = spread(self._merged(fuse(rankings), where))
                if len(found) >= k or depth >= total:
                    return found[:k]
                depth *= 8
        return []

    def as_retriever(self, k: int = 5) -> BaseRetriever:
        """Return a LangChain retriever for the ``k`` best passages."""
        from selfcorrect_rag.search.retriever import IndexRetriever

        return IndexRetriever(index=self, k=k)

    def add(self, documents: Iterable[Document]) -> int:
        """Write documents, one passage each, and return how many were not in the index before.

        A passage is known by its source, title, heading and text; adding it again replaces its
        metadata.
        """
        rest, added = iter(documents), 0
        with self.writing():
            while batch := list(islice(rest, BATCH_SIZE)):
                added += self.write(batch)
        return added

    def __len__(self) -> int:
        """Return the number of different passages."""
        with index_errors(self.path):
            return self._one("SELECT count(DISTINCT content) FROM passages")

    def close(self) -> None:
        """Close files; the index may still be used and opens them again."""
        with self._lock, _clients_lock:
            self._words = None
            _, client = _clients.pop(str(self.path.resolve()), (0, None))
            if client is not None:
                client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the index for one writer; at the end, readers see all that was written.

        Raises:
            IndexBusy: another writer holds it; its hold ends with its process.
        """
        with (
            index_errors(self.path),
            closing(sqlite3.connect(self.path / "lock.sqlite3", timeout=0)) as lock,
        ):
            lock.execute("BEGIN EXCLUSIVE")
            try:
                yield
            finally:
                with self._database() as database:  # "open" may be a killed run's
                    changed = database.execute("DELETE FROM meta WHERE key = 'open'").rowcount
                    if changed:
                        database.execute("UPDATE meta SET value = value + 1 WHERE key = 'version'")
                if changed:
                    with self._lock:
                        self._load_words()
                make_private(self.path)

    def write(self, documents: Sequence[Document]) -> int:
        """Write a batch within `writing`, and return how many passages are new."""
        passages = {passage_id(d): d for d in map(storable, documents) if d.page_content.strip()}
        metadata = {id_: json.dumps(d.metadata, sort_keys=True) for id_, d in passages.items()}
        with self._database() as database:
            rows = database.execute(f"SELECT id, metadata {_AMONG}", [json.dumps(list(passages))])
            known = dict(rows.fetchall())
            database.execute("INSERT OR IGNORE INTO meta VALUES ('open', 1)")
        changed = {id_: d for id_, d in passages.items() if known.get(id_) != metadata[id_]}
        if changed and self.embeddings is not None:
            self._write_vectors(changed)
        with self._database() as database:
            database.executemany(
                "INSERT OR REPLACE INTO passages VALUES (?, ?, ?, ?, ?)",
                [
                    (id_, str(d.metadata.get("source", "")), content_id(d), d.page_content, m)
                    for id_, d in changed.items()
                    if (m := metadata[id_])
                ],
            )
        return len(passages) - len(known)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove passages within `writing`."""
        if self.embeddings is not None:
            for start in range(0, len(ids), BATCH_SIZE):
                with self._collection() as collection:
                    collection.delete(ids=list(ids[start : start + BATCH_SIZE]))
        with self._database() as database:
            database.execute("INSERT OR IGNORE INTO meta VALUES ('open', 1)")
            database.execute(f"DELETE {_AMONG}", [json.dumps(list(ids))])

    def _write_vectors(self, passages: Mapping[str, Document]) -> None:
        assert self.embeddings is not None
        with self._collection() as collection:
            held = collection.get(ids=list(passages), include=["embeddings"])
        vectors = {i: v.tolist() for i, v in zip(held["ids"], held["embeddings"], strict=True)}
        new = [id_ for id_ in passages if id_ not in vectors]
        with wrap_errors(ModelFailed, "the embeddings"):
            made = self.embeddings.embed_documents([indexed_text(passages[id_]) for id_ in new])
            if len(made) != len(new):
                raise ValueError(f"{len(made)} vectors for {len(new)} passages")
            if not all(math.isfinite(sum(vector)) for vector in made):
                raise ValueError("a vector holds a value that is not a number")
        vectors |= zip(new, made, strict=True)
        with self._collection() as collection:
            if held["ids"]:  # an update would merge metadata
                collection.delete(ids=held["ids"])
            collection.add(
                ids=list(passages),
                embeddings=[vectors[id_] for id_ in passages],
                documents=[d.page_content for d in passages.values()],
                metadatas=[d.metadata or None for d in passages.values()],
            )

    # Files, within `writing`

    def finished(self) -> dict[str, tuple[str, str]]:
        """Return fingerprint and fault of each source whose passages are all in the index."""
        with self._database() as database:
            rows = database.execute("SELECT source, fingerprint, fault FROM files").fetchall()
        return {source: (fingerprint, fault) for source, fingerprint, fault in rows}

    def sources(self) -> list[str]:
        """Return all sources that hold passages."""
        query = "SELECT source FROM passages UNION SELECT source FROM files ORDER BY source"
        with self._database() as database:
            return [source for (source,) in database.execute(query)]

    def finish(self, source: str, ids: set[str], fingerprint: str, fault: str) -> int:
        """Record a source as finished; return how many passages it no longer has.

        Without a fingerprint, the source is forgotten.
        """
        with self._database() as database:
            rows = database.execute("SELECT id FROM passages WHERE source = ?", [source])
            stale = [id_ for (id_,) in rows if id_ not in ids]
        if stale:
            self.remove(stale)
        with self._database() as database:
            database.execute("DELETE FROM files WHERE source = ?", [source])
            if fingerprint:
                row = (source, fingerprint, fault)
                database.execute("INSERT INTO files VALUES (?, ?, ?)", row)
        return len(stale)

    # Ranking

    def _nearest(self, vector: list[float], n: int, where: Filter | None) -> list[str]:
        options = {} if where is None else {"where": where}
        with self._collection() as collection:
            found = collection.query(
                query_embeddings=[vector], n_results=n, include=["distances"], **options
            )
        return cast(list[str], found["ids"][0])

    def _best_words(self, query: str, n: int) -> list[str]:
        ids, bm25 = self._load_words()
        (tokens,) = tokenize([query])
        if bm25 is None or not tokens:
            return []
        places, scores = bm25.retrieve(
            [tokens], k=min(n, len(ids)), show_progress=False, backend_selection="numpy"
        )
        found = sorted(zip(-scores[0], places[0], strict=True))  # copies in their order
        return [ids[place] for score, place in found if score < 0]

    def _merged(self, ranked: Mapping[str, float], where: Filter | None) -> list[Document]:
        """Return the passages that the filter lets through, those of the same content as one."""
        with self._database() as database:
            rows = database.execute(
                f"SELECT id, content, text, metadata {_AMONG}", [json.dumps(list(ranked))]
            ).fetchall()
        known = {id_: rest for id_, *rest in rows}
        merged: dict[str, Document] = {}
        for id_, score in ranked.items():
            content, text, stored = known.get(id_, ("", "", "{}"))
            metadata = json.loads(stored)
            if not text or (where is not None and not matches(where, metadata)):
                continue
            if content not in merged:
                best = next(iter(ranked.values()))
                metadata["score"] = score / best
                merged[content] = Document(text, id=id_, metadata=metadata)
            elif "source" in metadata:
                first = merged[content].metadata
                sources = {*first.get("sources", [first.get("source")]), metadata["source"]}
                first["sources"] = sorted(sources)
        return list(merged.values())

    # Storage

    def _load_words(self) -> tuple[list[str], Any]:
        """Return the passages' ids and their BM25, of the current version."""
        version = self._one("SELECT value FROM meta WHERE key = 'version'")
        if self._words is None or self._words[0] != version:
            folder = self.path / f"words-{version}"
            found = load_words(folder)
            if found is None:
                with self._database() as database:
                    rows = database.execute(
                        "SELECT id, text, metadata FROM passages ORDER BY rowid"
                    )
                    known = {id_: Document(text, metadata=json.loads(m)) for id_, text, m in rows}
                found = count_words({id_: indexed_text(d) for id_, d in known.items()}, folder)
                make_private(self.path)
            self._words = version, *found
        return self._words[1:]

    @contextmanager
    def _collection(self) -> Iterator[Any]:
        """Hold Chroma's collection as of the index's version."""
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # chromadb imports onnxruntime
        chromadb = require("chromadb", "demo")
        name = str(self.path.resolve())
        version = self._one("SELECT value FROM meta WHERE key = 'version'")
        with _clients_lock:
            opened, client = _clients.get(name, (-1, None))
            if opened != version:
                if client is not None:
                    client.close()
                options = chromadb.Settings(anonymized_telemetry=False)
                client = chromadb.PersistentClient(name, settings=options)
                _clients[name] = version, client
            yield client.get_or_create_collection(
                "passages", embedding_function=None, configuration={"hnsw": _GRAPH}
            )

    def _one(self, query: str) -> int:
        with self._database() as database:
            return int(database.execute(query).fetchone()[0])

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Open SQLite for one transaction."""
        with closing(sqlite3.connect(self.path / INDEX_FILE)) as database, database:
            yield database


def is_index(path: Path) -> bool:
    """Return whether the folder ``path`` holds an index."""
    return (path / INDEX_FILE).is_file()


def open_index(
    path: str | Path,
    embeddings: Embeddings | Literal["bm25"] | None = None,
    *,
    create: bool = False,
) -> Index:
    """Open the index in the folder ``path``; see `Index`.

    Raises:
        NoIndex: there is none, unless ``create``.
    """
    if not create and not any(Path(path).glob("*.sqlite3")):
        raise NoIndex(f"{path} holds no index: selfcorrect-rag index PATH... --index {path}")
    return Index(path, embeddings)


def embedder_name(embeddings: Embeddings | None) -> str:
    """Return the name by which an index knows its embeddings: ``name``, or class and model."""
    if embeddings is None:
        return "bm25"
    names = [getattr(embeddings, key, None) for key in ("name", "model", "model_name")]
    name, *models = (value if isinstance(value, str) else "" for value in names)
    kind = type(embeddings)
    return name or f"{kind.__module__}:{kind.__qualname__} {next(filter(None, models), '')}".strip()


def _default_embeddings() -> Embeddings:
    from selfcorrect_rag.reader.embeddings import ReaderEmbeddings

    return ReaderEmbeddings()
