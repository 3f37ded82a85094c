"""Passages in a LangChain vector store of the user's."""

import json
from collections.abc import Sequence
from pathlib import Path

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


class StoreIndex(Index):
    """Passages in any LangChain vector store, and a list of them in the folder ``path``.

    The list makes indexing resumable whatever the store tells: not all find by id, and some add an
    id twice. A passage's id in the store is its `passage_id`, which also reads as a UUID. The store
    embeds the text alone, without the title, and scores nothing here.

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
        with index_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        kind = type(store)
        embeddings = f" of {embedder_name(store.embeddings)}" if store.embeddings else ""
        self.embedder = f"{kind.__module__}:{kind.__qualname__}{embeddings}"
        with transaction(self.path, STORE_FILE) as listed:
            listed.executescript(_SCHEMA)
            listed.execute("INSERT OR IGNORE INTO made VALUES (1, ?)", [self.embedder])
            (recorded,) = listed.execute("SELECT store FROM made").fetchone()
        if recorded != self.embedder:
            raise EmbedderMismatch(
                f"{self.path} is of {recorded}, not of {self.embedder}: "
                "give that store or index into a new folder"
            )
        if len(self) and not self.search("passage", 1):
            raise UnreadableIndex(
                f"{self.path} lists {len(self):,} passages, and the store is empty: "
                "give the store that has them, or index into a new folder"
            )

    def search(self, query: str, k: int = 5) -> list[Document]:
        with raised_as(StoreFailed, "the vector store"):
            return self.store.similarity_search(valid(query), k=k)

    async def asearch(self, query: str, k: int = 5) -> list[Document]:
        with raised_as(StoreFailed, "the vector store"):
            return await self.store.asimilarity_search(valid(query), k=k)

    def ids(self) -> set[str]:
        with transaction(self.path, STORE_FILE) as listed:
            return {id_ for (id_,) in listed.execute(f"SELECT id {_WRITTEN}")}

    def __len__(self) -> int:
        with transaction(self.path, STORE_FILE) as listed:
            return int(listed.execute(f"SELECT count(*) {_WRITTEN}").fetchone()[0])

    def _write(self, passages: dict[str, Document]) -> int:
        metadata = {id_: json.dumps(passages[id_].metadata, sort_keys=True) for id_ in passages}
        marks = ", ".join("?" * len(passages))
        with transaction(self.path, STORE_FILE) as listed:
            query = f"SELECT id, metadata FROM passages WHERE id IN ({marks})"
            known = dict(listed.execute(query, list(passages)).fetchall())
            written = [id_ for id_ in passages if known.get(id_) != metadata[id_]]
            rows = [(id_, None) for id_ in written]
            listed.executemany("INSERT OR REPLACE INTO passages VALUES (?, ?)", rows)
        if written:
            with raised_as(StoreFailed, "the vector store"):
                if earlier := [id_ for id_ in written if id_ in known]:
                    self.store.delete(earlier)
                self.store.add_documents([passages[id_] for id_ in written], ids=written)
        with transaction(self.path, STORE_FILE) as listed:
            done = [(id_, metadata[id_]) for id_ in written]
            listed.executemany("INSERT OR REPLACE INTO passages VALUES (?, ?)", done)
        return sum(known.get(id_) is None for id_ in written)

    def _remove(self, ids: Sequence[str]) -> None:
        with raised_as(StoreFailed, "the vector store"):
            self.store.delete(list(ids))
        with transaction(self.path, STORE_FILE) as listed:
            listed.executemany("DELETE FROM passages WHERE id = ?", [(id_,) for id_ in ids])
