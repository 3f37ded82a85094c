"""The vectors of an index, in Chroma."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import SelfCorrectError, require

_GRAPH = {"space": "cosine", "max_neighbors": 32, "ef_construction": 200, "ef_search": 200}
_lock = threading.RLock()
_clients: dict[str, tuple[int, Any]] = {}
"""One client a folder, with the version it was opened at: Chroma shares what a process has open,
and does not see what other processes write."""


def _forget_clients() -> None:
    """Open Chroma anew in a forked process, which has none of its threads."""
    global _lock
    _lock = threading.RLock()
    _clients.clear()
    if shared := sys.modules.get("chromadb.api.shared_system_client"):
        shared.SharedSystemClient.clear_system_cache()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_forget_clients)


class UnreadableIndex(SelfCorrectError, OSError):
    """An index is damaged, or may not be read or written, or its folder holds something else."""


class Vectors:
    """Vectors in a folder, by the ids of the contents that they were made of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, vectors: dict[str, list[float]], version: int) -> None:
        """Write vectors by id; ``version`` is the index's."""
        if vectors:
            with self._collection(version) as collection:
                collection.upsert(ids=list(vectors), embeddings=list(vectors.values()))

    def known(self, ids: Sequence[str], version: int) -> set[str]:
        """Return the ids that have a vector."""
        with self._collection(version) as collection:
            return set(collection.get(ids=list(ids), include=[])["ids"]) if ids else set()

    def remove(self, ids: Sequence[str], version: int) -> None:
        """Remove the vectors of ``ids``."""
        if ids:
            with self._collection(version) as collection:
                collection.delete(ids=list(ids))

    def nearest(
        self, vector: list[float], n: int, version: int, among: Sequence[str] | None = None
    ) -> list[str]:
        """Return the ids of at most ``n`` vectors by cosine, nearest first, ``among`` some ids."""
        with self._collection(version) as collection:
            found = collection.query(
                query_embeddings=[vector],
                n_results=n,
                ids=None if among is None else list(among),
                include=[],
            )
        ids: list[str] = found["ids"][0]
        return ids

    @contextmanager
    def _collection(self, version: int) -> Iterator[Any]:
        """Hold Chroma's collection, opened at this version.

        Raises:
            UnreadableIndex: Chroma raised.
            DiskFull: the disk is full.
        """
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # chromadb imports onnxruntime
        chromadb = require("chromadb", "demo")
        name = str(self._folder.resolve())
        with _lock:
            try:
                opened, client = _clients.get(name, (-1, None))
                if opened != version:
                    if client is not None:
                        client.close()
                    settings = chromadb.Settings(anonymized_telemetry=False)
                    client = chromadb.PersistentClient(name, settings=settings)
                    _clients[name] = version, client
                yield client.get_or_create_collection(
                    "passages", embedding_function=None, configuration={"hnsw": _GRAPH}
                )
            except BaseException as error:  # a panic of Chroma's Rust is not an Exception
                if not type(error).__module__.startswith(("chroma", "pyo3")):
                    raise
                raise UnreadableIndex(
                    f"{self._folder} does not open as an index ({' '.join(str(error).split())}): "
                    "check its permissions, repair it, or index into a new folder"
                ) from error
