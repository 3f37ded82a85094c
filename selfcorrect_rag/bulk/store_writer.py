"""Embeds passages and writes them to a vector store, in an actor of Ray."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from selfcorrect_rag.errors import StoreFailed, require
from selfcorrect_rag.search.index import raised_as
from selfcorrect_rag.search.open_index import BadName, find_store
from selfcorrect_rag.search.store import delete, store_name, write


class NotShared(BadName):
    """A vector store that one process keeps to itself."""


class StoreWriter:
    """A vector store, made where this runs; every call may be repeated.

    Args:
        name: the store's ``module:attribute``.
        folder: the folder that the command runs in, where modules are found too, if it is here.

    Raises:
        BadName, NotShared: at any call: no vector store, or one that others cannot share.
        StoreFailed: at any call: the store raised.
    """

    def __init__(self, name: str, folder: str) -> None:
        self.name = name
        with suppress(OSError):
            os.chdir(folder)

    @cached_property
    def _store(self) -> VectorStore:
        # At the first call, not when the actor starts: there, Ray would say it in many lines.
        store = find_store(self.name)
        if isinstance(store, BaseRetriever):
            raise BadName(
                f"{self.name} is {type(store).__name__}, which only reads: give the vector store"
            )
        if kept := kept_in_one_process(store):
            raise NotShared(
                f"{self.name} is {kept}, which takes one process: index without --on ray, or give "
                "a store on a server, such as PostgreSQL with pgvector, Qdrant, Milvus, OpenSearch"
            )
        return store

    @cached_property
    def _is_successor(self) -> bool:
        context = require("ray", "ray").get_runtime_context()
        return bool(context.was_current_actor_reconstructed)

    def store_name(self) -> str:
        """The class of the store and its embeddings."""
        return store_name(self._store)

    def holds_passages(self) -> bool:
        """Whether a search finds anything."""
        with raised_as(StoreFailed, "the vector store"):
            return bool(self._store.similarity_search("passage", k=1))

    def write(self, passages: Mapping[str, tuple[str, str]], earlier: Sequence[str]) -> None:
        """Write passages, as text and metadata (JSON) by id, after those in ``earlier`` are out."""
        documents = {
            id_: Document(text, metadata=json.loads(metadata))
            for id_, (text, metadata) in passages.items()
        }
        # An actor that was killed may have written any of what its successor is given.
        write(self._store, documents, list(documents) if self._is_successor else earlier)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete passages."""
        delete(self._store, ids)


def kept_in_one_process(store: VectorStore) -> str | None:
    """What a store is that one process keeps to itself, as far as its class tells; else None.

    Known are LangChain's in-memory store, FAISS, and Qdrant, Chroma and Milvus without a server.
    """
    if isinstance(store, InMemoryVectorStore) or type(store).__name__ == "FAISS":
        return f"{type(store).__name__}, kept in memory"
    package = type(store).__module__.partition(".")[0]
    if package == "langchain_qdrant":
        options = store.client.init_options  # type: ignore[attr-defined]
        if options["path"] is not None:
            return "Qdrant on local disk"
        if options["location"] == ":memory:":
            return "Qdrant in memory"
    if package == "langchain_chroma":
        settings = store._client.get_settings()  # type: ignore[attr-defined]
        if not settings.chroma_server_host:
            return "Chroma on local disk" if settings.is_persistent else "Chroma in memory"
    if package == "langchain_milvus":
        address = str(getattr(store, "_connection_args", {}).get("uri", ""))
        if "://" not in address and address.endswith(".db"):
            return "Milvus Lite"
    return None
