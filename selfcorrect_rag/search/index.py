"""An index folder: passages in SQLite, their vectors in Chroma, their words ranked by bm25s.

SQLite is what counts: Chroma and bm25s only rank. A batch goes to Chroma first and to SQLite last,
in one transaction, so that a killed run leaves nothing half done. A version number tells indexes
that other processes hold open that something has changed.
"""

import hashlib
import json
import math
import os
import sqlite3
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from selfcorrect_rag.errors import ModelFailed, SelfCorrectError, require, wrap_errors
from selfcorrect_rag.intake import valid
from selfcorrect_rag.search.retriever import AnyRetriever, Filter, compile_filter

INDEX_FILE = "index.sqlite3"
"""The file by which a folder is known as an index."""
Ranking = Literal["hybrid", "dense", "bm25"]
BATCH_SIZE = 128
"""Passages embedded and written at once; a killed run loses at most one batch."""
_RRF = 60
"""Reciprocal rank fusion adds 1 / (60 + rank) of each ranking."""
_SAME_PLACE = 2
"""Passages of one page or section that come before those of other places."""
_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"  # scripts without spaces
_TOKEN = rf"(?u)[{_WIDE}]|[^\W{_WIDE}]+"
_GRAPH = {"space": "cosine", "max_neighbors": 32, "ef_construction": 200, "ef_search": 200}
_LAYOUT = 3
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
_VERSION = "SELECT value FROM meta WHERE key = 'version'"
_NEXT_VERSION = "UPDATE meta SET value = value + 1 WHERE key = 'version'"

_Snapshot = tuple[int, dict[str, list[Document]], Any]
"""A version, its passages, those of the same content together by its id, and ``bm25s.BM25``, or
None if there are no words."""
_lock = threading.RLock()
_clients: dict[str, tuple[int, Any]] = {}
"""Chroma's client of each folder and the version it was opened at: Chroma shares what a process has
open, and does not see what other processes write."""


def _forget_clients() -> None:
    """Open Chroma anew in a forked process, which has none of its threads."""
    global _lock
    _lock = threading.RLock()
    _clients.clear()
    if shared := sys.modules.get("chromadb.api.shared_system_client"):
        shared.SharedSystemClient.clear_system_cache()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_clients)


class NoIndex(SelfCorrectError, FileNotFoundError):
    """A folder holds no index, or one of an earlier version."""


class UnreadableIndex(SelfCorrectError, OSError):
    """An index is damaged, may not be read or written, or another process is writing to it."""


class EmbedderMismatch(SelfCorrectError, ValueError):
    """An index was made with other embeddings than it is opened with."""


class Index:
    """Passages in a folder, found by their words and by embeddings.

    Args:
        path: The folder; it is made if it does not exist, for its user only.
        embeddings: LangChain embeddings; None takes the embedded reader's, or none if the index was
            made without; "bm25" finds by words alone.
    """

    def __init__(
        self, path: str | Path, embeddings: Embeddings | Literal["bm25"] | None = None
    ) -> None:
        self.path = Path(path)
        self._held: _Snapshot = (-1, {}, None)
        require("bm25s", "demo")
        foreign = NoIndex(
            f"{path} holds other files, or an index of an earlier version: index again, into a new "
            "or empty folder"
        )
        with _index_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if any(self.path.iterdir()) and not is_index(self.path):
                raise foreign
            with self._database() as database:
                database.executescript(_SCHEMA)
                known = dict(database.execute("SELECT key, value FROM meta"))
                if known.get("layout", _LAYOUT) != _LAYOUT:
                    raise foreign
                if embeddings is None and known.get("embedder") != "bm25":
                    from selfcorrect_rag.reader.network import ReaderEmbeddings

                    embeddings = ReaderEmbeddings()
                self.embeddings = None if isinstance(embeddings, str) else embeddings
                name = embedder_name(self.embeddings)
                if "embedder" not in known:  # a read-only index can be searched
                    rows = [("embedder", name), ("layout", _LAYOUT), ("version", 0)]
                    database.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", rows)
            self._make_private()
        if known.get("embedder", name) != name:
            raise EmbedderMismatch(
                f"{path} was indexed with {known['embedder']}, not with {name}: "
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
        """
        is_let = (lambda metadata: True) if filter is None else compile_filter(filter)
        query, vector = valid(query), None
        if self.embeddings is not None and ranking != "bm25":
            with wrap_errors(ModelFailed, "the embeddings"):
                vector = self.embeddings.embed_query(query)
        depth = max(50, 4 * k)
        rankings: list[list[str]] = []
        with _index_errors(self.path):
            _, passages, words = self._snapshot()
            kept = {
                content: copies
                for content, every in passages.items()
                if (copies := [copy for copy in every if is_let(copy.metadata)])
            }
            if vector is not None and kept:
                among = None if filter is None else list(kept)
                with self._vectors() as vectors:
                    nearest = vectors.query([vector], ids=among, n_results=depth, include=[])
                rankings.append(nearest["ids"][0])
            if words is not None and ranking != "dense":
                ids = _rank_words(words, query, list(passages))
                rankings.append(list(islice((each for each in ids if each in kept), depth)))
        ranked: dict[str, float] = {}
        for contents in rankings:
            for rank, content in enumerate(contents, 1):
                if content in kept:  # Chroma may hold vectors of a killed run
                    ranked[content] = ranked.get(content, 0.0) + 1 / (_RRF + rank)
        order = sorted(ranked, key=lambda content: -ranked[content])
        found = [_merged(kept[each], ranked[each] / ranked[order[0]]) for each in order]
        return _spread(found)[:k]

    def as_retriever(self, k: int = 5) -> AnyRetriever:
        """Return a LangChain retriever for the ``k`` best passages."""
        return AnyRetriever(self.search, most=k, name="Index")

    def add(self, documents: Iterable[Document]) -> int:
        """Write documents, one passage each, and return how many were not in the index before.

        A passage that is added again, with the same source, title and text, has its new metadata.
        """
        rest, added = iter(documents), 0
        with self.writing():
            while batch := list(islice(rest, BATCH_SIZE)):
                added += self.write(batch)
        return added

    def __len__(self) -> int:
        """Return the number of different passages."""
        with _index_errors(self.path):
            return len(self._snapshot()[1])

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the index for one writer; others get `UnreadableIndex` meanwhile."""
        lock_file = self.path / "lock.sqlite3"
        with _index_errors(self.path), closing(sqlite3.connect(lock_file, timeout=0)) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            try:
                yield
            finally:
                self._make_private()

    def write(self, documents: Sequence[Document]) -> int:
        """Write a batch within `writing`, and return how many passages are new."""
        passages = {passage_id(d): d for d in documents if d.page_content.strip()}
        contents = {content_id(d): d for d in passages.values()}
        known, embedded = self._known("id", passages), self._known("content", contents)
        new = {content: d for content, d in contents.items() if content not in embedded}
        if new and self.embeddings is not None:
            with wrap_errors(ModelFailed, "the embeddings"):
                made = self.embeddings.embed_documents([indexed_text(d) for d in new.values()])
                if len(made) != len(new) or not all(math.isfinite(sum(vector)) for vector in made):
                    raise ValueError(f"{len(made)} vectors of finite numbers for {len(new)} texts")
            with self._vectors() as vectors:
                vectors.upsert(list(new), made)
        rows = [
            (
                id_,
                valid(str(document.metadata.get("source", ""))),
                content_id(document),
                valid(document.page_content),
                json.dumps(document.metadata, default=str, skipkeys=True),
            )
            for id_, document in passages.items()
        ]
        with self._database() as database:
            database.execute(_NEXT_VERSION)
            database.executemany(
                "INSERT INTO passages VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET metadata = excluded.metadata",
                rows,
            )
        return len(passages) - len(known)

    def files(self) -> dict[str, tuple[str, str]]:
        """Return fingerprint and fault of each source, both empty if it is not finished."""
        with self._database() as database:
            rows = database.execute(
                "SELECT source, '' AS fingerprint, '' FROM passages "
                "UNION SELECT source, fingerprint, fault FROM files ORDER BY fingerprint"
            )
            return {source: (fingerprint, fault) for source, fingerprint, fault in rows}

    def finish(self, source: str, ids: set[str], fingerprint: str = "", fault: str = "") -> int:
        """Record a source as finished within `writing`; return how many passages it lost.

        A source without a fingerprint is forgotten.
        """
        with self._database() as database:
            rows = database.execute("SELECT id, content FROM passages WHERE source = ?", [source])
            stale = {id_: content for id_, content in rows if id_ not in ids}
            database.executemany("DELETE FROM passages WHERE id = ?", [(id_,) for id_ in stale])
            database.execute("DELETE FROM files WHERE source = ?", [source])
            if fingerprint:
                row = (source, fingerprint, fault)
                database.execute("INSERT INTO files VALUES (?, ?, ?)", row)
            database.execute(_NEXT_VERSION)
        unused = set(stale.values()) - self._known("content", stale.values())
        if unused and self.embeddings is not None:
            with self._vectors() as vectors:
                vectors.delete(sorted(unused))
        return len(stale)

    def _known(self, column: str, values: Iterable[str]) -> set[str]:
        """Return those of the values that stand in a column of the passages."""
        with self._database() as database:
            rows = database.execute(
                f"SELECT {column} FROM passages WHERE {column} IN (SELECT value FROM json_each(?))",
                [json.dumps(list(values))],
            )
            return {value for (value,) in rows}

    def _snapshot(self) -> _Snapshot:
        with self._database() as database:
            database.execute("BEGIN")  # version and passages of one moment
            (version,) = database.execute(_VERSION).fetchone()
            if self._held[0] == version:
                return self._held
            query = "SELECT id, content, text, metadata FROM passages ORDER BY rowid"
            rows = database.execute(query).fetchall()
        passages: dict[str, list[Document]] = {}
        for id_, content, text, metadata in rows:
            document = Document(text, id=id_, metadata=json.loads(metadata))
            passages.setdefault(content, []).append(document)
        words = require("bm25s", "demo").BM25()
        tokens = _tokenize([indexed_text(copies[0]) for copies in passages.values()])
        if any(tokens):
            words.index(tokens, show_progress=False)
        held = self._held = version, passages, words if any(tokens) else None
        return held

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path / INDEX_FILE)) as database, database:
            yield database

    @contextmanager
    def _vectors(self) -> Iterator[Any]:
        with self._database() as database:
            (version,) = database.execute(_VERSION).fetchone()
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # chromadb imports onnxruntime
        chromadb, folder = require("chromadb", "demo"), str(self.path.resolve())
        with _lock:
            opened, client = _clients.pop(folder, (-1, None))
            if opened != version:
                if client is not None:
                    client.close()
                settings = chromadb.Settings(anonymized_telemetry=False)
                client = chromadb.PersistentClient(folder, settings=settings)
            _clients[folder] = version, client
            yield client.get_or_create_collection(
                "passages", embedding_function=None, configuration={"hnsw": _GRAPH}
            )

    def _make_private(self) -> None:
        for path in self.path.rglob("*"):
            with suppress(OSError):
                path.chmod(0o700 if path.is_dir() else 0o600)


def is_index(path: Path) -> bool:
    """Return whether the folder ``path`` holds an index."""
    return (path / INDEX_FILE).is_file()


def open_index(
    path: str | Path,
    embeddings: Embeddings | Literal["bm25"] | None = None,
    *,
    create: bool = False,
) -> Index:
    """Open the index in the folder ``path``; without ``create``, there must be one."""
    if not create and not is_index(Path(path)):
        raise NoIndex(f"{path} holds no index: selfcorrect-rag index PATH... --index {path}")
    return Index(path, embeddings)


def embedder_name(embeddings: Embeddings | None) -> str:
    """Return the name by which an index knows its embeddings: ``name``, or class and model."""
    if embeddings is None:
        return "bm25"
    kind = type(embeddings)
    model = getattr(embeddings, "model", None) or getattr(embeddings, "model_name", "")
    name = f"{kind.__module__}:{kind.__qualname__} {model if isinstance(model, str) else ''}"
    return str(getattr(embeddings, "name", None) or name.strip())


def indexed_text(document: Document) -> str:
    """Return what is embedded and scored: title, headings and text."""
    title, heading = (str(document.metadata.get(key, "")) for key in ("title", "heading"))
    heading = heading.removeprefix(title).removeprefix(" > ")
    return valid("\n".join(filter(None, (title, heading, document.page_content))))


def content_id(document: Document) -> str:
    """Return a digest of title, heading and text."""
    text = indexed_text(document).encode(errors="replace")
    return hashlib.sha256(text).hexdigest()[:32]


def passage_id(document: Document) -> str:
    """Return a digest of source, title, heading and text."""
    text = f"{document.metadata.get('source', '')}\0{indexed_text(document)}"
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32]


def _rank_words(words: Any, query: str, contents: Sequence[str]) -> Iterator[str]:
    """Yield those of the contents that share words with the query, best first."""
    if tokens := [token for token in _tokenize([query])[0] if token in words.vocab_dict]:
        scores = words.get_scores(tokens)
        order = (-scores).argsort(kind="stable").tolist()
        yield from (contents[i] for i in order if scores[i] > 0)


def _merged(copies: Sequence[Document], score: float) -> Document:
    first = copies[0]
    sources = sorted({str(d.metadata["source"]) for d in copies if "source" in d.metadata})
    metadata = {**first.metadata, **({"sources": sources} if sources[1:] else {}), "score": score}
    return Document(first.page_content, id=first.id, metadata=metadata)


def _spread(documents: Sequence[Document]) -> list[Document]:
    """Put passages of a place that has two better ones behind those of other places."""
    taken = Counter[tuple[str, ...]]()
    is_later: list[bool] = []
    for document in documents:
        place = tuple(str(document.metadata.get(key)) for key in ("source", "page", "heading"))
        taken[place] += "chunk" in document.metadata
        is_later.append(taken[place] > _SAME_PLACE)
    order = sorted(range(len(documents)), key=is_later.__getitem__)
    return [documents[i] for i in order]


def _tokenize(texts: list[str]) -> list[list[str]]:
    """Return each text's words, without English stop words."""
    found: list[list[str]] = require("bm25s", "demo").tokenize(
        [text.casefold() for text in texts],
        lower=False,
        token_pattern=_TOKEN,
        stopwords="english",
        return_ids=False,
        show_progress=False,
    )
    return found


@contextmanager
def _index_errors(path: Path) -> Iterator[None]:
    """Raise what SQLite, Chroma and the disk raise as errors that say what to do."""
    try:
        yield
    except SelfCorrectError:
        raise
    except BaseException as error:  # a panic of Chroma's Rust is not an Exception
        is_chromas = type(error).__module__.startswith(("chroma", "pyo3"))
        if not is_chromas and not isinstance(error, sqlite3.Error | OSError):
            raise
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            busy = f"another process is writing to {path}: run again when it has finished"
            raise UnreadableIndex(busy) from error
        raise UnreadableIndex(
            f"{path} does not open as an index ({' '.join(str(error).split())}): check the disk's "
            "space and the permissions, or index into a new folder"
        ) from error
