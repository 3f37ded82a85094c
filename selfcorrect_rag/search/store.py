"""Passages in a LangChain vector store of the user's."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from selfcorrect_rag.errors import StoreFailed
from selfcorrect_rag.search.chroma import EmbedderMismatch, embedder_name
from selfcorrect_rag.search.index import (
    STORE_FILE,
    Index,
    UnreadableIndex,
    index_errors,
    raised_as,
    transaction,
)
from selfcorrect_rag.state.intake import valid

_SCHEMA = """
CREATE TABLE IF NOT EXISTS made (only_one INTEGER PRIMARY KEY, store TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS passages (id TEXT PRIMARY KEY, metadata TEXT) WITHOUT ROWID;
"""
# The others are being written, or a killed run left them in the store or not.
_WRITTEN = "FROM passages WHERE metadata IS NOT NULL"


class Lacking(NamedTuple):
    """What a vector store lacks of a batch of passages."""

    ids: list[str]
    """Those to write."""
    earlier: list[str]
    """Those among them to delete first: they have other metadata, or may be in the store or not."""
    new: int
    """How many were not in the store."""


class StoreList:
    """A list, in the folder ``path``, of the passages that a vector store has.

    It makes indexing resumable whatever the store tells: not all find by id, and some add an id
    twice. A passage is written between `begin` and `end`; a killed run leaves it begun.

    Args:
        path: The folder; each store needs its own.
        store: The store's `store_name`.

    Raises:
        EmbedderMismatch: the list is of a store of another class or with other embeddings.
        IndexBusy, DiskFull, ReadOnlyIndex: at any call, for the folder; see `index_errors`.
    """

    def __init__(self, path: Path, store: str) -> None:
        self.path = path
        with index_errors(path):
            path.mkdir(parents=True, exist_ok=True)
        with transaction(path, STORE_FILE) as listed:
            listed.executescript(_SCHEMA)
            listed.execute("INSERT OR IGNORE INTO made VALUES (1, ?)", [store])
            (recorded,) = listed.execute("SELECT store FROM made").fetchone()
        if recorded != store:
            raise EmbedderMismatch(
                f"{path} is of {recorded}, not of {store}: "
                "give that store or index into a new folder"
            )

    def refuse_emptied(self, holds_passages: Callable[[], bool]) -> None:
        """Do nothing unless passages are listed and the store is empty.

        Raises:
            UnreadableIndex: it is.
        """
        if len(self) and not holds_passages():
            raise UnreadableIndex(
                f"{self.path} lists {len(self):,} passages, and the store is empty: "
                "give the store that has them, or index into a new folder"
            )

    def ids(self) -> set[str]:
        """The ids of all passages that are written."""
        with transaction(self.path, STORE_FILE) as listed:
            return {id_ for (id_,) in listed.execute(f"SELECT id {_WRITTEN}")}

    def begun(self) -> list[str]:
        """The ids of passages that a killed run was writing."""
        with transaction(self.path, STORE_FILE) as listed:
            query = "SELECT id FROM passages WHERE metadata IS NULL"
            return [id_ for (id_,) in listed.execute(query)]

    def __len__(self) -> int:
        with transaction(self.path, STORE_FILE) as listed:
            return int(listed.execute(f"SELECT count(*) {_WRITTEN}").fetchone()[0])

    def begin(self, metadata: Mapping[str, str]) -> Lacking:
        """Record, before a batch is written, which of its passages will be.

        Args:
            metadata: The passages' metadata by id, as `listed_metadata`.
        """
        marks = ", ".join("?" * len(metadata))
        with transaction(self.path, STORE_FILE) as listed:
            query = f"SELECT id, metadata FROM passages WHERE id IN ({marks})"
            known = dict(listed.execute(query, list(metadata)).fetchall())
            ids = [id_ for id_ in metadata if known.get(id_) != metadata[id_]]
            rows = [(id_, None) for id_ in ids]
            listed.executemany("INSERT OR REPLACE INTO passages VALUES (?, ?)", rows)
        new = sum(known.get(id_) is None for id_ in ids)
        return Lacking(ids, [id_ for id_ in ids if id_ in known], new)

    def end(self, metadata: Mapping[str, str]) -> None:
        """Record passages that are written, with their metadata."""
        with transaction(self.path, STORE_FILE) as listed:
            rows = list(metadata.items())
            listed.executemany("INSERT OR REPLACE INTO passages VALUES (?, ?)", rows)

    def remove(self, ids: Sequence[str]) -> None:
        """Record passages that are no longer in the store."""
        with transaction(self.path, STORE_FILE) as listed:
            listed.executemany("DELETE FROM passages WHERE id = ?", [(id_,) for id_ in ids])


class StoreIndex(Index):
    """Passages in any LangChain vector store, and a `StoreList` of them in the folder ``path``.

    A passage's id in the store is its `passage_id`, which also reads as a UUID. The store embeds
    the text alone, without the title, and scores nothing here.

    Args:
        path: The folder of the list; each store needs its own.
        store: Adds documents under given ids and deletes by id. Read from it directly where you
            want its filters, scores or maximal marginal relevance.

    Raises:
        EmbedderMismatch: the list is of a store of another class or with other embeddings.
        UnreadableIndex: the list names passages, and the store is empty.
        StoreFailed: at any call: the store raised.
        IndexBusy, DiskFull, ReadOnlyIndex: at any call, for the folder; see `index_errors`.
    """

    def __init__(self, path: str | Path, store: VectorStore) -> None:
        self.path, self.store = Path(path), store
        self.embedder = store_name(store)
        self._listed = StoreList(self.path, self.embedder)
        self._listed.refuse_emptied(lambda: bool(self.search("passage", 1)))

    def search(self, query: str, k: int = 5) -> list[Document]:
        with raised_as(StoreFailed, "the vector store"):
            return self.store.similarity_search(valid(query), k=k)

    async def asearch(self, query: str, k: int = 5) -> list[Document]:
        with raised_as(StoreFailed, "the vector store"):
            return await self.store.asimilarity_search(valid(query), k=k)

    def ids(self) -> set[str]:
        return self._listed.ids()

    def __len__(self) -> int:
        return len(self._listed)

    def begun(self) -> list[str]:
        return self._listed.begun()

    def _write(self, passages: dict[str, Document]) -> int:
        metadata = {id_: listed_metadata(passage) for id_, passage in passages.items()}
        lacking = self._listed.begin(metadata)
        write(self.store, {id_: passages[id_] for id_ in lacking.ids}, lacking.earlier)
        self._listed.end({id_: metadata[id_] for id_ in lacking.ids})
        return lacking.new

    def _remove(self, ids: Sequence[str]) -> None:
        delete(self.store, ids)
        self._listed.remove(ids)


def store_name(store: VectorStore) -> str:
    """The class of a store and its embeddings, by which a list knows it again."""
    kind = type(store)
    embeddings = f" of {embedder_name(store.embeddings)}" if store.embeddings else ""
    return f"{kind.__module__}:{kind.__qualname__}{embeddings}"


def listed_metadata(passage: Document) -> str:
    """A storable passage's metadata as JSON, the same for equal metadata."""
    return json.dumps(passage.metadata, sort_keys=True)


def write(store: VectorStore, passages: Mapping[str, Document], earlier: Sequence[str]) -> None:
    """Put passages into a store under their ids, after those of the ids in ``earlier`` are out.

    Raises:
        StoreFailed: the store raised.
    """
    if passages:
        delete(store, earlier)
        with raised_as(StoreFailed, "the vector store"):
            store.add_documents(list(passages.values()), ids=list(passages))


def delete(store: VectorStore, ids: Sequence[str]) -> None:
    """Delete passages from a store.

    Raises:
        StoreFailed: the store raised.
    """
    if ids:
        with raised_as(StoreFailed, "the vector store"):
            store.delete(list(ids))
