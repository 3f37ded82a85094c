"""An index folder: passages and their vectors in SQLite, ranked by vectors and by bm25s.

Each batch is one transaction, so that a killed run leaves nothing half done. A version number tells
indexes that other processes hold open that something has changed. Vectors are compared exactly: a
hundred thousand take some ten milliseconds.
"""

import json
import math
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever

from selfcorrect_rag.errors import (
    ModelFailed,
    SelfCorrectError,
    disk_full,
    error_codes,
    require,
    wrap_errors,
)
from selfcorrect_rag.intake import valid
from selfcorrect_rag.search.documents import INDEX_FILE, indexed_text, passage_id
from selfcorrect_rag.search.filters import Filter, compile_filter

Ranking = Literal["hybrid", "dense", "bm25"]
BATCH_SIZE = 128
"""Passages embedded and written at once; a killed run loses at most one batch."""
_RRF = 60
"""Reciprocal rank fusion adds 1 / (60 + rank) of each ranking."""
_SAME_PLACE = 2
"""Passages of one page or section that come before those of other places."""
_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"  # scripts without spaces
_TOKEN = rf"(?u)[{_WIDE}]|[^\W{_WIDE}]+"
_LAYOUT = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS files (
    source TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, fault TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS passages (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, text TEXT NOT NULL, metadata TEXT NOT NULL,
    vector BLOB);
CREATE INDEX IF NOT EXISTS sources ON passages (source);
"""
_NEXT_VERSION = "UPDATE meta SET value = value + 1 WHERE key = 'version'"
_AMONG = "FROM passages WHERE id IN (SELECT value FROM json_each(?))"


class NoIndex(SelfCorrectError, FileNotFoundError):
    """A folder holds no index, or one of an earlier version."""


class UnreadableIndex(SelfCorrectError, OSError):
    """An index is damaged, or may not be read or written, or its folder holds something else."""


class IndexBusy(SelfCorrectError, RuntimeError):
    """Another process is writing to the index."""


class EmbedderMismatch(SelfCorrectError, ValueError):
    """An index was made with other embeddings than it is opened with."""


class _Snapshot(NamedTuple):
    """The passages of one version in memory, those of the same content as one."""

    version: int
    passages: list[list[Document]]
    vectors: Any
    """Unit vectors, float32 (passages, dimensions)."""
    words: Any
    """``bm25s.BM25``; None if there are no words."""


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
        self._held: _Snapshot | None = None
        require("bm25s", "demo")
        with _index_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            names = {entry.name for entry in self.path.iterdir()}
            earlier = NoIndex(
                f"{self.path} was made by an earlier version: index again, into a new folder"
            )
            if names and INDEX_FILE not in names:
                told = "holds other files: give the index a new or empty folder"
                is_earlier = any(name.endswith(".sqlite3") for name in names)
                raise earlier if is_earlier else UnreadableIndex(f"{self.path} {told}")
            with self._database() as database:
                database.executescript(_SCHEMA)
                known = dict(database.execute("SELECT key, value FROM meta"))
                if known.get("layout", _LAYOUT) != _LAYOUT:
                    raise earlier
                if embeddings is None and known.get("embedder") != "bm25":
                    from selfcorrect_rag.reader.embeddings import ReaderEmbeddings

                    embeddings = ReaderEmbeddings()
                self.embeddings = None if isinstance(embeddings, str) else embeddings
                name = embedder_name(self.embeddings)
                if "embedder" not in known:  # a read-only index can be searched
                    rows = [("embedder", name), ("layout", _LAYOUT), ("version", 0)]
                    database.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", rows)
            self._make_private()
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
        """
        is_let = (lambda metadata: True) if filter is None else compile_filter(filter)
        query, vector = valid(query), None
        if self.embeddings is not None and ranking != "bm25":
            with wrap_errors(ModelFailed, "the embeddings"):
                vector = self.embeddings.embed_query(query)
        with _index_errors(self.path):
            held = self._snapshot()
        kept = {
            place: copies
            for place, every in enumerate(held.passages)
            if (copies := [copy for copy in every if is_let(copy.metadata)])
        }
        ranked: dict[int, float] = {}
        for scores, least in self._scores(held, query, vector, ranking):
            best = (i for i in (-scores).argsort(kind="stable").tolist() if i in kept)
            for rank, place in enumerate(islice(best, max(50, 4 * k)), 1):
                if scores[place] > least:
                    ranked[place] = ranked.get(place, 0.0) + 1 / (_RRF + rank)
        order = sorted(ranked, key=lambda place: -ranked[place])
        found = [_merged(kept[place], ranked[place] / ranked[order[0]]) for place in order]
        return _spread(found)[:k]

    def as_retriever(self, k: int = 5) -> BaseRetriever:
        """Return a LangChain retriever for the ``k`` best passages."""
        from selfcorrect_rag.search.retriever import IndexRetriever

        return IndexRetriever(index=self, k=k)

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
            return len(self._snapshot().passages)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._held = None  # nothing stays open: it may still be used

    # Writing

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the index for one writer, to the end of its process; others get `IndexBusy`."""
        with (
            _index_errors(self.path),
            closing(sqlite3.connect(self.path / "lock.sqlite3", timeout=0)) as lock,
        ):
            lock.execute("BEGIN EXCLUSIVE")
            try:
                yield
            finally:
                self._store_words(self._snapshot())
                self._make_private()

    def write(self, documents: Sequence[Document]) -> int:
        """Write a batch within `writing`, and return how many passages are new."""
        passages = {passage_id(d): d for d in documents if d.page_content.strip()}
        with self._database() as database:
            rows = database.execute(f"SELECT id {_AMONG}", [json.dumps(list(passages))])
            known = {id_ for (id_,) in rows}
        vectors = self._embed([id_ for id_ in passages if id_ not in known], passages)
        with self._database() as database:
            database.execute(_NEXT_VERSION)
            database.executemany(
                "INSERT INTO passages VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET metadata = excluded.metadata",
                [
                    (
                        id_,
                        valid(str(document.metadata.get("source", ""))),
                        valid(document.page_content),
                        json.dumps(document.metadata, default=str, skipkeys=True),
                        vectors.get(id_),
                    )
                    for id_, document in passages.items()
                ],
            )
        return len(passages) - len(known)

    def _embed(self, ids: Sequence[str], passages: Mapping[str, Document]) -> dict[str, bytes]:
        if self.embeddings is None or not ids:
            return {}
        with wrap_errors(ModelFailed, "the embeddings"):
            made = self.embeddings.embed_documents([indexed_text(passages[id_]) for id_ in ids])
            if len(made) != len(ids) or not all(math.isfinite(sum(vector)) for vector in made):
                raise ValueError(f"{len(made)} vectors of finite numbers for {len(ids)} passages")
        vectors = require("numpy", "demo").asarray(made, "float32")
        return {id_: vector.tobytes() for id_, vector in zip(ids, vectors, strict=True)}

    # Files, within `writing`

    def finished(self) -> dict[str, tuple[str, str]]:
        """Return fingerprint and fault of each source whose passages are all in the index."""
        with self._database() as database:
            rows = database.execute("SELECT source, fingerprint, fault FROM files").fetchall()
        return {source: (fingerprint, fault) for source, fingerprint, fault in rows}

    def sources(self) -> list[str]:
        """Return all sources that hold passages."""
        with self._database() as database:
            rows = database.execute("SELECT DISTINCT source FROM passages ORDER BY source")
            return [source for (source,) in rows]

    def finish(self, source: str, ids: set[str], fingerprint: str, fault: str) -> int:
        """Record a source as finished; return how many passages it no longer has."""
        with self._database() as database:
            rows = database.execute("SELECT id FROM passages WHERE source = ?", [source])
            stale = [id_ for (id_,) in rows if id_ not in ids]
            database.execute(f"DELETE {_AMONG}", [json.dumps(stale)])
            row = (source, fingerprint, fault)
            database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", row)
            database.execute(_NEXT_VERSION)
        return len(stale)

    # Reading

    def _scores(
        self, held: _Snapshot, query: str, vector: list[float] | None, ranking: Ranking
    ) -> Iterator[tuple[Any, float]]:
        """Yield scores of all passages, and the number that the score of a match exceeds."""
        numpy = require("numpy", "demo")
        if vector is not None and held.passages:
            yield held.vectors @ numpy.asarray(vector, "float32"), -math.inf
        tokens = _tokenize([query])[0] if held.words is not None and ranking != "dense" else []
        if tokens := [token for token in tokens if token in held.words.vocab_dict]:
            yield held.words.get_scores(tokens), 0.0

    def _snapshot(self) -> _Snapshot:
        """Return the passages of the current version."""
        with self._database() as database:
            database.execute("BEGIN")  # version and passages of one moment
            (version,) = database.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()
            if self._held is not None and self._held.version == version:
                return self._held
            rows = database.execute(
                "SELECT id, text, metadata, vector FROM passages ORDER BY rowid"
            ).fetchall()
        passages: dict[str, list[Document]] = {}
        vectors: dict[str, bytes] = {}
        for id_, text, metadata, vector in rows:
            document = Document(text, id=id_, metadata=json.loads(metadata))
            content = indexed_text(document)
            passages.setdefault(content, []).append(document)
            vectors.setdefault(content, vector)
        groups, matrix = list(passages.values()), None
        if groups and self.embeddings is not None:
            numpy = require("numpy", "demo")
            flat = numpy.frombuffer(b"".join(vectors.values()), "float32")
            matrix = flat.reshape(len(groups), -1)
            lengths = numpy.linalg.norm(matrix, axis=1, keepdims=True)
            matrix = matrix / numpy.maximum(lengths, 1e-12)
        held = self._held = _Snapshot(version, groups, matrix, self._load_words(version, groups))
        return held

    def _load_words(self, version: int, groups: Sequence[Sequence[Document]]) -> Any:
        """Return the stored BM25 of this version, or else compute it."""
        bm25s = require("bm25s", "demo")
        with suppress(Exception):  # there is none, or a damaged one
            return bm25s.BM25.load(self.path / f"words-{version}", mmap=True, show_progress=False)
        tokens = _tokenize([indexed_text(copies[0]) for copies in groups])
        if not any(tokens):
            return None
        words = bm25s.BM25()
        words.index(tokens, show_progress=False)
        return words

    def _store_words(self, held: _Snapshot) -> None:
        folder = self.path / f"words-{held.version}"
        if held.words is None or folder.exists():
            return
        with tempfile.TemporaryDirectory(dir=self.path, prefix="new-") as new:
            held.words.save(Path(new) / "words", show_progress=False)
            for earlier in self.path.glob("words-*"):
                shutil.rmtree(earlier, ignore_errors=True)
            (Path(new) / "words").rename(folder)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """Open SQLite for one transaction."""
        with closing(sqlite3.connect(self.path / INDEX_FILE)) as database, database:
            yield database

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
    return name or f"{kind.__module__}:{kind.__qualname__} {''.join(models[:2])}".strip()


def _merged(copies: Sequence[Document], score: float) -> Document:
    first = copies[0]
    sources = sorted({str(d.metadata["source"]) for d in copies if "source" in d.metadata})
    metadata = {**first.metadata, **({"sources": sources} if sources[1:] else {}), "score": score}
    return Document(first.page_content, id=first.id, metadata=metadata)


def _spread(documents: Sequence[Document]) -> list[Document]:
    """Put passages of a place that has two better ones behind those of other places."""
    taken: dict[tuple[Any, ...], int] = {}
    first: list[Document] = []
    later: list[Document] = []
    for document in documents:
        place = tuple(str(document.metadata.get(key)) for key in ("source", "page", "heading"))
        taken[place] = taken.get(place, 0) + ("chunk" in document.metadata)
        (later if taken[place] > _SAME_PLACE else first).append(document)
    return [*first, *later]


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
    """Raise what SQLite and the disk raise as errors that say what to do."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, SelfCorrectError):
            raise
        code, _ = error_codes(error)
        if full := disk_full(path, error):
            raise full from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise IndexBusy(
                f"another process is writing to {path}: run again when it has finished"
            ) from error
        raise UnreadableIndex(
            f"{path} does not open as an index ({' '.join(str(error).split())}): check its "
            "permissions, repair it, or index into a new folder"
        ) from error
