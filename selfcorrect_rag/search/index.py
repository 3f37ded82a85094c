"""An index folder: passages in SQLite, their vectors in Chroma, their words in bm25s.

SQLite is what counts: Chroma and bm25s only rank. A batch goes to Chroma first and to SQLite last,
in one transaction, so that a killed run leaves nothing half done. A version number tells indexes
that other processes hold open that something has changed.
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
    require,
    wrap_errors,
)
from selfcorrect_rag.intake import valid
from selfcorrect_rag.search.documents import INDEX_FILE, content_id, indexed_text, passage_id
from selfcorrect_rag.search.filters import Filter, compile_filter
from selfcorrect_rag.search.vectors import UnreadableIndex, Vectors

Ranking = Literal["hybrid", "dense", "bm25"]
BATCH_SIZE = 128
"""Passages embedded and written at once; a killed run loses at most one batch."""
_RRF = 60
"""Reciprocal rank fusion adds 1 / (60 + rank) of each ranking."""
_SAME_PLACE = 2
"""Passages of one page or section that come before those of other places."""
_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"  # scripts without spaces
_TOKEN = rf"(?u)[{_WIDE}]|[^\W{_WIDE}]+"
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
_AMONG = "FROM passages WHERE id IN (SELECT value FROM json_each(?))"


class NoIndex(SelfCorrectError, FileNotFoundError):
    """A folder holds no index, or one of an earlier version."""


class IndexBusy(SelfCorrectError, RuntimeError):
    """Another process is writing to the index."""


class EmbedderMismatch(SelfCorrectError, ValueError):
    """An index was made with other embeddings than it is opened with."""


class _Snapshot(NamedTuple):
    """The passages of one version in memory."""

    version: int
    passages: dict[str, list[Document]]
    """Those of the same content together, by its id."""
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
        self._vectors = Vectors(self.path)
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
        depth = max(50, 4 * k)
        with _index_errors(self.path):
            held = self._snapshot()
            kept = {
                content: copies
                for content, every in held.passages.items()
                if (copies := [copy for copy in every if is_let(copy.metadata)])
            }
            rankings: list[list[str]] = []
            if vector is not None and kept:
                among = None if filter is None else list(kept)
                rankings.append(self._vectors.nearest(vector, depth, held.version, among))
            if held.words is not None and ranking != "dense":
                rankings.append(_best_words(held, query, kept, depth))
        ranked: dict[str, float] = {}
        for contents in rankings:
            for rank, content in enumerate(contents, 1):
                if content in kept:  # Chroma may hold vectors of a killed run
                    ranked[content] = ranked.get(content, 0.0) + 1 / (_RRF + rank)
        order = sorted(ranked, key=lambda content: -ranked[content])
        found = [_merged(kept[each], ranked[each] / ranked[order[0]]) for each in order]
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
        contents = {content_id(d): d for id_, d in passages.items() if id_ not in known}
        if self.embeddings is not None:
            self._embed(contents)
        with self._database() as database:
            database.execute(_NEXT_VERSION)
            database.executemany(
                "INSERT INTO passages VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET metadata = excluded.metadata",
                [
                    (
                        id_,
                        valid(str(document.metadata.get("source", ""))),
                        content_id(document),
                        valid(document.page_content),
                        json.dumps(document.metadata, default=str, skipkeys=True),
                    )
                    for id_, document in passages.items()
                ],
            )
        return len(passages) - len(known)

    def _embed(self, contents: Mapping[str, Document]) -> None:
        """Write the vectors of contents that have none."""
        known = self._vectors.known(list(contents), self._version())
        new = {content: d for content, d in contents.items() if content not in known}
        if not new or self.embeddings is None:
            return
        with wrap_errors(ModelFailed, "the embeddings"):
            made = self.embeddings.embed_documents([indexed_text(d) for d in new.values()])
            if len(made) != len(new) or not all(math.isfinite(sum(vector)) for vector in made):
                raise ValueError(f"{len(made)} vectors of finite numbers for {len(new)} passages")
        self._vectors.add(dict(zip(new, made, strict=True)), self._version())

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
            rows = database.execute("SELECT id, content FROM passages WHERE source = ?", [source])
            stale = {id_: content for id_, content in rows if id_ not in ids}
            database.execute(f"DELETE {_AMONG}", [json.dumps(list(stale))])
            used = database.execute(
                "SELECT content FROM passages WHERE content IN (SELECT value FROM json_each(?))",
                [json.dumps(list(stale.values()))],
            )
            unused = set(stale.values()) - {content for (content,) in used}
            row = (source, fingerprint, fault)
            database.execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", row)
            database.execute(_NEXT_VERSION)
        if self.embeddings is not None:
            self._vectors.remove(sorted(unused), self._version())
        return len(stale)

    # Reading

    def _version(self) -> int:
        with self._database() as database:
            return int(database.execute(_VERSION).fetchone()[0])

    def _snapshot(self) -> _Snapshot:
        """Return the passages of the current version."""
        with self._database() as database:
            database.execute("BEGIN")  # version and passages of one moment
            (version,) = database.execute(_VERSION).fetchone()
            if self._held is not None and self._held.version == version:
                return self._held
            rows = database.execute(
                "SELECT id, content, text, metadata FROM passages ORDER BY rowid"
            ).fetchall()
        passages: dict[str, list[Document]] = {}
        for id_, content, text, metadata in rows:
            document = Document(text, id=id_, metadata=json.loads(metadata))
            passages.setdefault(content, []).append(document)
        words = self._load_words(version, list(passages.values()))
        held = self._held = _Snapshot(version, passages, words)
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


def _best_words(held: _Snapshot, query: str, kept: Mapping[str, object], most: int) -> list[str]:
    """Return the ids of the contents that share words with the query, best first."""
    tokens = [token for token in _tokenize([query])[0] if token in held.words.vocab_dict]
    if not tokens:
        return []
    scores, contents = held.words.get_scores(tokens), list(held.passages)
    best = (contents[i] for i in (-scores).argsort(kind="stable").tolist() if scores[i] > 0)
    return list(islice((content for content in best if content in kept), most))


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
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise IndexBusy(
                f"another process is writing to {path}: run again when it has finished"
            ) from error
        raise UnreadableIndex(
            f"{path} does not open as an index ({' '.join(str(error).split())}): check its "
            "permissions, repair it, or index into a new folder"
        ) from error
