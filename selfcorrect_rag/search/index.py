"""An index folder: passages in SQLite, their vectors in Chroma, their words in bm25s.

SQLite is what counts: Chroma and bm25s only propose ids, and what SQLite does not hold is not
found. A batch of passages goes into Chroma first and is committed to SQLite last, so that a killed
run leaves nothing half done. A version number in SQLite tells open indexes of other processes that
something changed.
"""

import hashlib
import json
import math
import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self, cast

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from selfcorrect_rag.errors import (
    ModelFailed,
    SelfCorrectError,
    describe_error,
    disk_full,
    error_codes,
    require,
)
from selfcorrect_rag.intake import valid
from selfcorrect_rag.search.files import INDEX_FILE
from selfcorrect_rag.search.filters import Filter, matches, normal

Ranking = Literal["hybrid", "dense", "bm25"]
BATCH_SIZE = 128
"""Passages embedded and written at once; a killed run loses at most one batch."""
_RRF = 60
"""Reciprocal rank fusion adds 1 / (60 + rank) of each ranking."""
_SAME_PLACE = 2
"""Passages of one page or section that are taken before those of other places."""
_WORDS = (
    r"(?u)[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]+"
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    source TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, fault TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS passages (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, content TEXT NOT NULL, text TEXT NOT NULL,
    metadata TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS sources ON passages (source);
CREATE INDEX IF NOT EXISTS contents ON passages (content);
"""
_LAYOUT = 1
_clients: dict[str, tuple[int, Any]] = {}
"""One Chroma client a folder, and the index's version that it was opened at: Chroma shares what a
process has open, and does not see what others write."""
_clients_lock = threading.RLock()


class NoIndex(SelfCorrectError, FileNotFoundError):
    """A folder holds no index, or one of an earlier version."""


class UnreadableIndex(SelfCorrectError, OSError):
    """An index is damaged or not readable, or its folder holds something else."""


class ReadOnlyIndex(SelfCorrectError, OSError):
    """An index may not be written to."""


class IndexBusy(SelfCorrectError, RuntimeError):
    """Another process is writing to the index."""


class EmbedderMismatch(SelfCorrectError, ValueError):
    """An index was made with other embeddings than it is opened with."""


class Index:
    """Passages in a folder, found by their words and by embeddings.

    Args:
        path: The folder; it is made if it does not exist, readable to its user only.
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
        self.path = Path(path)
        require("bm25s", "demo")
        with self._errors():
            self._make_folder()
            with self._database() as database:
                database.executescript(_SCHEMA)
                known = dict(database.execute("SELECT key, value FROM meta"))
            self.embeddings = self._embeddings(embeddings, known.get("embedder"))
            self.embedder = embedder_name(self.embeddings)
            if known.get("embedder") not in (None, self.embedder):
                raise EmbedderMismatch(
                    f"{self.path} was indexed with {known['embedder']}, not with {self.embedder}: "
                    "open it with those embeddings or index into a new folder"
                )
            if known.get("layout", _LAYOUT) != _LAYOUT:
                raise NoIndex(_OLD.format(self.path))
            if "embedder" not in known:
                rows = [("embedder", self.embedder), ("layout", _LAYOUT), ("version", 0)]
                with self._database() as database:
                    database.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", rows)
            self._make_private()
        self._lock = threading.RLock()
        self._words: tuple[int, list[str], Any] | None = None

    def search(
        self, query: str, k: int = 5, *, filter: Filter | None = None, ranking: Ranking = "hybrid"
    ) -> list[Document]:
        """Return at most ``k`` passages, best first, as the index is now.

        Passages with the same title and text are one, with all their ``sources``; passages of one
        page or section fill more than two places only if there is nothing else. ``score`` is the
        fused rank in (0, 1].

        Args:
            filter: Conditions on metadata in Chroma's language: ``{"owner": "ada"}``,
                ``{"year": {"$gte": 2024}}``, ``{"$or": [...]}``.

        Raises:
            BadFilter: the filter is not in that language.
            ModelFailed: the embeddings raised.
        """
        filter = None if filter is None else normal(filter)
        query = valid(query)
        uses_vectors = self.embeddings is not None and ranking != "bm25"
        vector = self._embed_query(query) if uses_vectors else None
        with self._errors(), self._lock:
            total, depth = self._count(), max(50, 4 * k)
            while total:
                rankings = [self._nearest(vector, min(depth, total), filter)] if vector else []
                if ranking != "dense":
                    rankings.append(self._best_words(query, min(depth, total)))
                found = self._spread(self._merged(_fuse(rankings), filter), k)
                if len(found) == k or depth >= total:
                    return found
                depth *= 8
        return []

    def as_retriever(self, k: int = 5) -> Any:
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
        with self._errors(), self._database() as database:
            query = "SELECT count(DISTINCT content) FROM passages"
            return int(database.execute(query).fetchone()[0])

    def close(self) -> None:
        """Close files; the index may still be used and opens them again."""
        self._words = None
        with _clients_lock:
            if held := _clients.pop(str(self.path.resolve()), None):
                held[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the index for one writer; readers see all that was written at the end.

        Raises:
            IndexBusy: another writer holds it; its hold ends with its process.
        """
        with (
            self._errors(),
            closing(sqlite3.connect(self.path / "lock.sqlite3", timeout=0)) as lock,
        ):
            lock.execute("BEGIN EXCLUSIVE")
            self._repair()
            try:
                yield
            finally:
                with self._database() as database:
                    changed = database.execute("DELETE FROM meta WHERE key = 'open'").rowcount
                    if changed:
                        database.execute("UPDATE meta SET value = value + 1 WHERE key = 'version'")
                if changed:
                    with self._lock:
                        self._load_words()
                self._make_private()

    def write(self, documents: Sequence[Document]) -> int:
        """Write a batch within `writing`, and return how many passages are new."""
        passages = {passage_id(d): d for d in map(storable, documents) if d.page_content.strip()}
        with self._database() as database:
            query = "SELECT id, metadata FROM passages WHERE id IN (SELECT value FROM json_each(?))"
            known = dict(database.execute(query, [json.dumps(list(passages))]).fetchall())
        metadata = {id_: json.dumps(d.metadata, sort_keys=True) for id_, d in passages.items()}
        changed = [id_ for id_ in passages if known.get(id_) != metadata[id_]]
        if not changed:
            return 0
        self._mark_open()
        self._write_vectors({id_: passages[id_] for id_ in changed}, set(known))
        rows = [
            (
                id_,
                str(passages[id_].metadata.get("source", "")),
                _digest(indexed_text(passages[id_])),
                passages[id_].page_content,
                metadata[id_],
            )
            for id_ in changed
        ]
        with self._database() as database:
            database.executemany("INSERT OR REPLACE INTO passages VALUES (?, ?, ?, ?, ?)", rows)
        return sum(id_ not in known for id_ in changed)

    def remove(self, ids: Sequence[str]) -> None:
        """Remove passages within `writing`."""
        self._mark_open()
        with self._database() as database:
            database.executemany("DELETE FROM passages WHERE id = ?", [(id_,) for id_ in ids])
        if self.embeddings is not None:
            for start in range(0, len(ids), BATCH_SIZE):
                self._collection().delete(ids=list(ids[start : start + BATCH_SIZE]))

    # Files, within `writing`

    def finished(self) -> dict[str, tuple[str, str]]:
        """Return fingerprint and fault of each source whose passages are all in the index."""
        with self._database() as database:
            rows = database.execute("SELECT source, fingerprint, fault FROM files").fetchall()
        return {source: (fingerprint, fault) for source, fingerprint, fault in rows}

    def sources(self) -> list[str]:
        """Return all sources that hold passages."""
        with self._database() as database:
            rows = database.execute(
                "SELECT DISTINCT source FROM passages UNION SELECT source FROM files"
            )
            return sorted(source for (source,) in rows)

    def finish(self, source: str, ids: set[str], fingerprint: str, fault: str) -> int:
        """Record a source as finished; return how many passages it no longer has."""
        with self._database() as database:
            rows = database.execute("SELECT id FROM passages WHERE source = ?", [source])
            stale = [id_ for (id_,) in rows if id_ not in ids]
        if stale:
            self.remove(stale)
        with self._database() as database:
            database.execute(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (source, fingerprint, fault)
            )
        return len(stale)

    def forget(self, source: str) -> int:
        """Remove a source; return how many passages it had."""
        removed = self.finish(source, set(), "", "")
        with self._database() as database:
            database.execute("DELETE FROM files WHERE source = ?", [source])
        return removed

    def _mark_open(self) -> None:
        with self._database() as database:
            database.execute("INSERT OR IGNORE INTO meta VALUES ('open', 1)")

    def _repair(self) -> None:
        """Bring Chroma in line with SQLite after a killed run."""
        with self._database() as database:
            is_open = database.execute("SELECT 1 FROM meta WHERE key = 'open'").fetchone()
            if not is_open or self.embeddings is None:
                return
            ids = {id_ for (id_,) in database.execute("SELECT id FROM passages")}
        held = set(self._collection().get(include=[])["ids"])
        for left in map(list, _batches(sorted(held - ids))):
            self._collection().delete(ids=left)
        for lost in map(list, _batches(sorted(ids - held))):
            self._write_vectors({str(d.id): d for d in self._documents(lost)}, set())

    def _write_vectors(self, passages: Mapping[str, Document], known: set[str]) -> None:
        if self.embeddings is None:
            return
        new = {id_: d for id_, d in passages.items() if id_ not in known}
        vectors = self._embed([indexed_text(d) for d in new.values()]) if new else []
        collection = self._collection()
        if new:
            collection.upsert(
                ids=list(new),
                embeddings=vectors,
                documents=[d.page_content for d in new.values()],
                metadatas=[d.metadata or None for d in new.values()],
            )
        renewed = [id_ for id_ in passages if id_ in known]
        if renewed:  # an update merges; None takes a key away
            held = collection.get(ids=renewed, include=["metadatas"])
            old = dict(zip(held["ids"], held["metadatas"], strict=True))
            collection.update(
                ids=renewed,
                metadatas=[
                    {**dict.fromkeys(old.get(id_) or {}), **passages[id_].metadata}
                    for id_ in renewed
                ],
            )

    # Ranking

    def _nearest(self, vector: list[float], n: int, filter: Filter | None) -> list[str]:
        where = {} if filter is None else {"where": filter}
        found = self._collection().query(
            query_embeddings=[vector], n_results=n, include=["distances"], **where
        )
        return cast(list[str], found["ids"][0])

    def _best_words(self, query: str, n: int) -> list[str]:
        ids, bm25 = self._load_words()
        tokens = _tokenize([query])[0]
        if bm25 is None or not tokens:
            return []
        positions, scores = bm25.retrieve(
            [tokens], k=min(n, len(ids)), show_progress=False, backend_selection="numpy"
        )
        found = sorted(zip(-scores[0], positions[0], strict=True))  # copies in their order
        return [ids[position] for score, position in found if score < 0]

    def _merged(self, ranked: Mapping[str, float], filter: Filter | None) -> list[Document]:
        """Return the passages that the filter lets through, those of the same content as one."""
        merged: dict[str, Document] = {}
        best = max(ranked.values(), default=1.0)
        for document in self._documents(list(ranked)):
            if filter is not None and not matches(filter, document.metadata):
                continue
            content = _digest(indexed_text(document))
            source = document.metadata.get("source")
            if content not in merged:
                document.metadata["score"] = ranked[str(document.id)] / best
                merged[content] = document
            elif source is not None:
                first = merged[content].metadata
                first["sources"] = sorted({*first.get("sources", [first.get("source")]), source})
        return list(merged.values())

    def _spread(self, documents: Sequence[Document], k: int) -> list[Document]:
        """Take the ``k`` best, with those of a place that is well represented put off."""
        taken: dict[tuple[Any, ...], int] = {}
        first: list[Document] = []
        later: list[Document] = []
        for document in documents:
            known = document.metadata
            place = tuple(known.get(key) for key in ("source", "page", "heading"))
            windows = isinstance(known.get("chunk"), int)
            taken[place] = taken.get(place, 0) + 1
            (later if windows and taken[place] > _SAME_PLACE else first).append(document)
        return [*first, *later][:k]

    def _documents(self, ids: Sequence[str]) -> list[Document]:
        query = (
            "SELECT id, text, metadata FROM passages WHERE id IN (SELECT value FROM json_each(?))"
        )
        with self._database() as database:
            rows = database.execute(query, [json.dumps(ids)]).fetchall()
        found = {id_: Document(text, id=id_, metadata=json.loads(m)) for id_, text, m in rows}
        return [found[id_] for id_ in ids if id_ in found]

    def _embed_query(self, query: str) -> list[float]:
        assert self.embeddings is not None
        try:
            return self.embeddings.embed_query(query)
        except SelfCorrectError:
            raise
        except Exception as error:
            raise ModelFailed(f"the embeddings failed ({describe_error(error)})") from error

    def _embed(self, texts: list[str]) -> list[list[float]]:
        assert self.embeddings is not None
        try:
            vectors = self.embeddings.embed_documents(texts)
            if len(vectors) != len(texts):
                raise ValueError(f"{len(vectors)} vectors for {len(texts)} passages")
            if not all(math.isfinite(sum(vector)) for vector in vectors):
                raise ValueError("a vector holds a value that is not a number")
        except SelfCorrectError:
            raise
        except Exception as error:
            raise ModelFailed(f"the embeddings failed ({describe_error(error)})") from error
        return vectors

    # Storage

    def _load_words(self) -> tuple[list[str], Any]:
        """Return ids and ``bm25s.BM25`` of the current version; None if there are no words.

        They are computed at first use of a version and stored beside the passages.
        """
        version = self._version()
        if self._words is None or self._words[0] != version:
            folder = self.path / f"words-{version}"
            bm25s = require("bm25s", "demo")
            try:
                ids = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
                bm25 = bm25s.BM25.load(folder, mmap=True, show_progress=False)
            except Exception:  # there are none, or they are broken
                ids, bm25 = self._count_words(folder)
            self._words = version, ids, bm25
        return self._words[1:]

    def _count_words(self, folder: Path) -> tuple[list[str], Any]:
        with self._database() as database:
            rows = database.execute(
                "SELECT id, text, metadata FROM passages ORDER BY rowid"
            ).fetchall()
        texts = [indexed_text(Document(text, metadata=json.loads(m))) for _, text, m in rows]
        tokens, ids = _tokenize(texts), [id_ for id_, *_ in rows]
        if not any(tokens):
            return [], None
        bm25 = require("bm25s", "demo").BM25()
        bm25.index(tokens, show_progress=False)
        with suppress(OSError), tempfile.TemporaryDirectory(dir=self.path, prefix="new-") as new:
            stored = Path(new) / "words"  # a read-only index can be searched too
            bm25.save(stored, show_progress=False)
            (stored / "ids.json").write_text(json.dumps(ids), encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            stored.rename(folder)
            self._make_private()
            for earlier in self.path.glob("words-*"):
                if earlier != folder:
                    shutil.rmtree(earlier, ignore_errors=True)
        return ids, bm25

    def _collection(self) -> Any:
        """Return Chroma's collection as of the index's version."""
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # chromadb imports onnxruntime
        chromadb = require("chromadb", "demo")
        name, version = str(self.path.resolve()), self._version()
        with _clients_lock:
            opened, client = _clients.get(name, (-1, None))
            if opened != version or not (self.path / "chroma.sqlite3").exists():
                if client is not None:
                    client.close()
                    _clients.pop(name)
                client = chromadb.PersistentClient(
                    name, settings=chromadb.Settings(anonymized_telemetry=False)
                )
                _clients[name] = version, client
            return client.get_or_create_collection(
                "passages",
                embedding_function=None,
                configuration={
                    "hnsw": {
                        "space": "cosine",
                        "max_neighbors": 32,
                        "ef_construction": 200,
                        "ef_search": 200,
                    }
                },
            )

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Open SQLite for one transaction."""
        with closing(sqlite3.connect(self.path / INDEX_FILE)) as database, database:
            yield database

    def _version(self) -> int:
        with self._database() as database:
            return int(
                database.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0]
            )

    def _count(self) -> int:
        with self._database() as database:
            return int(database.execute("SELECT count(*) FROM passages").fetchone()[0])

    def _make_folder(self) -> None:
        if not self.path.exists():
            self.path.mkdir(parents=True, mode=0o700)
        held = {entry.name for entry in self.path.iterdir()}
        if INDEX_FILE in held:
            return
        if held & {"chroma.sqlite3", "bm25.sqlite3", "store.sqlite3"}:
            raise NoIndex(_OLD.format(self.path))
        if held:
            raise UnreadableIndex(
                f"{self.path} holds other files: give the index a new or empty folder"
            )

    def _make_private(self) -> None:
        for path in self.path.rglob("*"):
            with suppress(OSError):
                path.chmod(0o700 if path.is_dir() else 0o600)

    @staticmethod
    def _embeddings(given: Any, recorded: str | None) -> Embeddings | None:
        if given == "bm25" or (given is None and recorded == "bm25"):
            return None
        if given is not None:
            return cast(Embeddings, given)
        from selfcorrect_rag.reader.embeddings import ReaderEmbeddings

        return ReaderEmbeddings()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise what SQLite, Chroma and the disk raise as errors that say what to do."""
        try:
            yield
        except (SelfCorrectError, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of Chroma's Rust is not an Exception
            code, number = error_codes(error)
            reason = " ".join(str(error).split())
            if found := disk_full(self.path, error):
                raise found from error
            if code in (5, 6):
                raise IndexBusy(
                    f"another process is writing to {self.path}: run again when it has finished"
                ) from error
            if code in (3, 8, 14, 23) or isinstance(error, PermissionError) or number == 30:
                if os.access(self.path, os.R_OK | os.X_OK):
                    raise ReadOnlyIndex(
                        f"{self.path} cannot be written to ({reason}): make it writable, or index "
                        "into a new folder"
                    ) from error
                raise UnreadableIndex(f"you have no permission to read {self.path}") from error
            if isinstance(error, sqlite3.Error | OSError) or "chroma" in type(error).__module__:
                raise UnreadableIndex(
                    f"{self.path} does not open as an index ({reason}): index into a new folder"
                ) from error
            raise


_OLD = "{} was made by an earlier version: index again, into a new folder"


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
    path = Path(path)
    if not create and not (path.is_dir() and any(path.glob("*.sqlite3"))):
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


def indexed_text(document: Document) -> str:
    """Return what is embedded and scored: title and headings, which may name the subject, and text."""
    title, heading = (str(document.metadata.get(key, "")) for key in ("title", "heading"))
    heading = heading.removeprefix(title).removeprefix(" > ")
    return "\n".join(filter(None, (title, heading, document.page_content)))


def passage_id(document: Document) -> str:
    """Return 32 hexadecimal digits that depend on source, title, heading and text."""
    return _digest(json.dumps([document.metadata.get("source", ""), indexed_text(document)]))


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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _fuse(rankings: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return ids with their fused scores, best first (reciprocal rank fusion)."""
    scores: dict[str, float] = {}
    for ids in rankings:
        for rank, id_ in enumerate(ids, 1):
            scores[id_] = scores.get(id_, 0.0) + 1 / (_RRF + rank)
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def _tokenize(texts: list[str]) -> list[list[str]]:
    tokens = require("bm25s", "demo").tokenize(
        [text.casefold() for text in texts],
        lower=False,
        token_pattern=_WORDS,
        stopwords="english",
        return_ids=False,
        show_progress=False,
    )
    return cast(list[list[str]], tokens)


def _batches(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    return (ids[start : start + BATCH_SIZE] for start in range(0, len(ids), BATCH_SIZE))
