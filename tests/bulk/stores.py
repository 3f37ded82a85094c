"""Vector stores on a PostgreSQL server, and embeddings that write down what they did."""

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import psycopg
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from langchain_postgres import PGEngine, PGVectorStore

from tests.search.stand_ins import WordHash


class Logged(WordHash):
    """Writes the process and the number of texts into a file, a line for each call."""

    def __init__(self, log: Path, seconds_per_text: float = 0.0) -> None:
        super().__init__(seconds_per_text)
        self.log = log

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        vectors = super().embed_documents(texts)
        with self.log.open("a") as log:
            log.write(f"{os.getpid()} {len(texts)}\n")
        return vectors


def pgvector(address: str, table: str, embeddings: Embeddings) -> VectorStore:
    engine = PGEngine.from_connection_string(address)
    return PGVectorStore.create_sync(engine, embeddings, table)


class Appending(VectorStore):
    """A table without a key: what is added twice is there twice.

    A process that finds the file ``killed_by`` after it has added something takes it and dies.
    """

    def __init__(
        self, address: str, table: str, embeddings: Embeddings, killed_by: Path | None = None
    ) -> None:
        self.address, self.table, self._embeddings = address, table, embeddings
        self.killed_by = killed_by
        columns = "id text, content text, metadata text, vector vector"
        self._do(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")

    @property
    def embeddings(self) -> Embeddings:
        return self._embeddings

    def add_documents(
        self, documents: list[Document], ids: list[str] | None = None, **options: Any
    ) -> list[str]:
        assert ids is not None
        vectors = self._embeddings.embed_documents([d.page_content for d in documents])
        for id_, document, vector in zip(ids, documents, vectors, strict=True):
            metadata, numbers = json.dumps(document.metadata), numpy.array(vector, "float32")
            values = id_, document.page_content, metadata, numbers.tolist()
            self._do(f"INSERT INTO {self.table} VALUES (%s, %s, %s, %s::vector)", values)
        if self.killed_by:
            try:
                self.killed_by.unlink()
            except FileNotFoundError:
                return ids
            os.kill(os.getpid(), signal.SIGKILL)
        return ids

    def delete(self, ids: list[str] | None = None, **options: Any) -> None:
        self._do(f"DELETE FROM {self.table} WHERE id = ANY(%s)", [ids])

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        with psycopg.connect(self.address) as connection:
            found = connection.execute(f"SELECT content FROM {self.table} LIMIT {k}").fetchall()
        return [Document(content) for (content,) in found]

    @classmethod
    def from_texts(cls, *given: Any, **options: Any) -> Any:
        raise NotImplementedError

    def _do(self, command: str, values: Sequence[Any] = ()) -> None:
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(command, values)
