"""Passages in a persistent Chroma collection, found by the cosine of explicit embeddings."""

import asyncio
import math
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from selfcorrect_rag.errors import ModelFailed, SelfCorrectError, require
from selfcorrect_rag.search.index import (
    Index,
    UnreadableIndex,
    index_errors,
    indexed_text,
    raised_as,
)
from selfcorrect_rag.search.minilm import MiniLM
from selfcorrect_rag.state.intake import valid

COLLECTION = "passages"
# Twice Chroma's defaults. Of the five nearest of 3,000 random vectors, the worst case for a graph,
# those find 0.962 and these 0.999; writing takes an eighth longer, embedding not counted.
_GRAPH = {"max_neighbors": 32, "ef_construction": 200, "ef_search": 200}

CLIENT_ATTEMPTS = 5
"""Most attempts to open a database that another process is making."""
_DIMENSIONS = re.compile(r"dimension of (\d+), got (\d+)")


class EmbedderMismatch(SelfCorrectError, ValueError):
    """An index was made with other embeddings than it is opened with."""


class ChromaIndex(Index):
    """A Chroma collection at ``path``, made there if there is none.

    ``score`` of a found passage is the cosine in [-1, 1] between it and the query.

    Args:
        path: The folder.
        embeddings: Any LangChain embeddings; `MiniLM` by default. Chroma's own default, which
            downloads a model, is never used.

    Raises:
        EmbedderMismatch: the collection holds vectors of other embeddings.
        UnreadableIndex, IndexBusy, DiskFull, ReadOnlyIndex: at any call; see `index_errors`.
        ModelFailed: at any call that embeds.
        MissingExtra: chromadb is not installed.
    """

    def __init__(self, path: str | Path, embeddings: Embeddings | None = None) -> None:
        self.path = Path(path)
        self.embeddings = embeddings if embeddings is not None else MiniLM()
        self.embedder = embedder_name(self.embeddings)
        # Both before chromadb is imported: it sends usage data and imports onnxruntime.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        os.environ.setdefault("ANONYMIZED_TELEMETRY", "False")
        chromadb = require("chromadb", "chroma")
        with self._errors():
            self._client = _client(chromadb, self.path)
            try:
                names = [collection.name for collection in self._client.list_collections()]
                if names and COLLECTION not in names:
                    raise UnreadableIndex(
                        f"{self.path} holds other collections ({', '.join(names)}): give one with "
                        "--store, or index into a new folder"
                    )
                self._collection = self._client.get_or_create_collection(
                    COLLECTION,
                    embedding_function=None,
                    configuration={"hnsw": {"space": "cosine", **_GRAPH}},
                    metadata={"embedder": self.embedder},
                )
            except BaseException:
                self._client.close()
                raise
        recorded = (self._collection.metadata or {}).get("embedder")
        if recorded != self.embedder:
            self.close()
            raise EmbedderMismatch(
                f"{self.path} was indexed with {recorded}, not with {self.embedder}: "
                "open it with those embeddings or index into a new folder"
            )

    def search(self, query: str, k: int = 5) -> list[Document]:
        with raised_as(ModelFailed, "the embeddings"):
            vector = self.embeddings.embed_query(valid(query))
        return self._nearest(vector, k)

    async def asearch(self, query: str, k: int = 5) -> list[Document]:
        with raised_as(ModelFailed, "the embeddings"):
            vector = await self.embeddings.aembed_query(valid(query))
        return await asyncio.to_thread(self._nearest, vector, k)

    def ids(self) -> set[str]:
        with self._errors():
            return set(self._collection.get(include=[])["ids"])

    def __len__(self) -> int:
        with self._errors():
            return int(self._collection.count())

    def close(self) -> None:
        self._client.close()

    def _nearest(self, vector: Sequence[float], k: int) -> list[Document]:
        if not len(self):
            return []
        with self._errors():
            found = self._collection.query(query_embeddings=[vector], n_results=k)
        rows = zip(
            found["ids"][0],
            found["documents"][0],
            found["metadatas"][0],
            found["distances"][0],
            strict=True,
        )
        return [
            Document(text, id=id_, metadata={**(metadata or {}), "score": 1.0 - distance})
            for id_, text, metadata, distance in rows
        ]

    def _write(self, passages: dict[str, Document]) -> int:
        with self._errors():
            stored = self._collection.get(ids=list(passages), include=["metadatas"])
        known: dict[str, Any] = dict(zip(stored["ids"], stored["metadatas"], strict=True))
        # An update merges; None takes a key away.
        renewed = {
            id_: {**dict.fromkeys(old or {}), **passages[id_].metadata}
            for id_, old in known.items()
            if (old or {}) != passages[id_].metadata
        }
        if renewed:
            with self._errors():
                self._collection.update(ids=list(renewed), metadatas=list(renewed.values()))
        new = [id_ for id_ in passages if id_ not in known]
        if new:
            vectors = self._embedded([indexed_text(passages[id_]) for id_ in new])
            with self._errors():
                self._collection.add(
                    ids=new,
                    embeddings=vectors,
                    documents=[passages[id_].page_content for id_ in new],
                    metadatas=[passages[id_].metadata or None for id_ in new],
                )
        return len(new)

    def _remove(self, ids: Sequence[str]) -> None:
        with self._errors():
            self._collection.delete(ids=list(ids))

    def _embedded(self, texts: list[str]) -> list[list[float]]:
        with raised_as(ModelFailed, "the embeddings"):
            vectors = self.embeddings.embed_documents(texts)
            if len(vectors) != len(texts):
                raise ValueError(f"{len(vectors)} vectors for {len(texts)} passages")
            if not all(math.isfinite(sum(vector)) for vector in vectors):
                raise ValueError("a vector with a value that is no number")
        return vectors

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with index_errors(self.path):
                yield
        except UnreadableIndex as error:
            if dimensions := _DIMENSIONS.search(str(error)):
                raise EmbedderMismatch(
                    f"{self.path} holds vectors of {dimensions[1]} dimensions, and "
                    f"{self.embedder} gives {dimensions[2]}: open it with the embeddings it was "
                    "made with or index into a new folder"
                ) from error
            raise


def _client(chromadb: Any, path: Path) -> Any:
    folder = str(path.resolve())  # Chroma keeps clients by name, whatever the folder is
    for attempt in range(1, CLIENT_ATTEMPTS + 1):
        try:
            return chromadb.PersistentClient(
                folder, settings=chromadb.Settings(anonymized_telemetry=False)
            )
        except BaseException as error:
            # Chroma keeps one that did not start, too, and would give it to whoever opens it next.
            shared = require("chromadb.api.shared_system_client", "chroma").SharedSystemClient
            shared._identifier_to_system.pop(folder, None)
            # Another process makes the same tables at this moment.
            if attempt == CLIENT_ATTEMPTS or "already exists" not in str(error):
                raise
            time.sleep(0.1 * attempt)
    raise AssertionError("the last attempt returns or raises")


def embedder_name(embeddings: Embeddings) -> str:
    """The name under which an index records its embeddings: their ``name``, or class and model."""
    name, model, model_name = (
        value if isinstance(value := getattr(embeddings, key, None), str) else None
        for key in ("name", "model", "model_name")
    )
    kind = type(embeddings)
    return name or " ".join(
        filter(None, [f"{kind.__module__}:{kind.__qualname__}", model or model_name])
    )
