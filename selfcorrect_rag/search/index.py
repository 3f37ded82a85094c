"""The interface of an index of passages, and errors about its folder, each with a remedy."""

import asyncio
import errno
import hashlib
import json
import math
import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Self

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field

from selfcorrect_rag.errors import Fault, SelfCorrectError, describe_error, disk_full, error_codes
from selfcorrect_rag.state.intake import valid

# SQLite's primary result codes.
_READ_ONLY, _BUSY, _CANNOT_OPEN = {3, 8, 23}, {5, 6}, 14


class UnreadableIndex(SelfCorrectError, OSError):
    """A folder that is damaged, not readable, or otherwise does not open as an index."""


class ReadOnlyIndex(SelfCorrectError, OSError):
    """An index that may not be written to."""


class IndexBusy(SelfCorrectError, RuntimeError):
    """Another process is writing to the index."""


@contextmanager
def index_errors(folder: Path, kind: type[BaseException] = BaseException) -> Iterator[None]:
    """Raise errors of this ``kind`` as those of this package, by their cause.

    Raises:
        UnreadableIndex, ReadOnlyIndex, IndexBusy, DiskFull
    """
    try:
        yield
    except SelfCorrectError:
        raise
    except kind as error:
        # A panic of Chroma's Rust is no Exception, and its class cannot be imported.
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise disk_full(folder, error) or _index_error(folder, error) from error
        raise


@contextmanager
def raised_as(kind: type[Fault], part: str) -> Iterator[None]:
    """Raise what a part of anybody's making raises as an error of this ``kind``."""
    try:
        yield
    except SelfCorrectError:
        raise
    except Exception as error:
        reason = f"{part} failed ({describe_error(error)})"
        raise kind(reason, "mend that and run again") from error


@contextmanager
def transaction(folder: Path, file: str) -> Iterator[sqlite3.Connection]:
    """A connection of its own to an SQLite file, which any thread may make; one transaction."""
    with index_errors(folder, sqlite3.Error):
        database = sqlite3.connect(folder / file)
        try:
            with database:
                yield database
        finally:
            database.close()


def _index_error(folder: Path, error: BaseException) -> SelfCorrectError:
    code, number = error_codes(error)
    reason = " ".join(str(error).split())
    denied = code in _READ_ONLY or number in (errno.EROFS, errno.EACCES, errno.EPERM)
    if (denied or code == _CANNOT_OPEN) and (unreadable := _unreadable(folder)):
        return UnreadableIndex(
            f"{folder} cannot be opened ({reason}): you have no permission to read {unreadable}"
        )
    if denied or (code == _CANNOT_OPEN and not os.access(folder, os.W_OK)):
        return ReadOnlyIndex(
            f"{folder} cannot be written to ({reason}): make it writable, "
            "or index into a new folder"
        )
    if code in _BUSY:
        return IndexBusy(f"{folder} is being written to ({reason}): try again later")
    return UnreadableIndex(
        f"{folder} does not open as an index ({reason}): it is damaged or something else; "
        "index into a new folder"
    )


def _unreadable(folder: Path) -> Path | None:
    """The first folder or file on the way into an index that this user may not read."""
    folder = folder.absolute()
    needed = {
        **dict.fromkeys(reversed(folder.parents), os.X_OK),
        folder: os.R_OK | os.X_OK,
        **dict.fromkeys(folder.glob("*.sqlite3"), os.R_OK),
    }
    for path, mode in needed.items():
        if os.path.exists(path) and not os.access(path, mode):
            return path
    return None


CHROMA_FILE = "chroma.sqlite3"
BM25_FILE = "bm25.sqlite3"
STORE_FILE = "store.sqlite3"
BATCH_SIZE = 128
"""Passages embedded and written at once; a killed run loses at most one batch."""


def is_index(path: Path) -> bool:
    """Whether the folder ``path`` holds an index of this package."""
    return any(holds(path, file) for file in (CHROMA_FILE, BM25_FILE, STORE_FILE))


def holds(folder: Path, file: str) -> bool:
    """Whether ``file`` is in ``folder``.

    Raises:
        UnreadableIndex: the folder may not be read.
    """
    with index_errors(folder, OSError):
        return (folder / file).exists()


class Index(ABC):
    """Passages in a folder.

    A passage is identified by its title and text (`passage_id`): adding it again only replaces its
    metadata. An empty index finds nothing, and that is no error.
    """

    path: Path
    embedder: str
    """Name of the embeddings, as recorded in the folder."""

    def add(
        self,
        documents: Iterable[Document],
        *,
        batch_size: int = BATCH_SIZE,
        on_batch: Callable[[int], None] | None = None,
    ) -> int:
        """Write documents, and return how many were not in the index before.

        Args:
            documents: One passage each, not split; those without text are left out. Metadata values
                other than numbers, booleans and strings become JSON text, and None is dropped.
            batch_size: Documents embedded and written at once. A batch is written whole or not at
                all.
            on_batch: Called after each batch with the number of documents in it.
        """
        rest = iter(documents)
        added = 0
        while batch := list(islice(rest, batch_size)):
            stored = map(storable, batch)
            added += self._write({passage_id(d): d for d in stored if d.page_content.strip()})
            if on_batch:
                on_batch(len(batch))
        return added

    def delete(self, ids: Sequence[str]) -> None:
        """Remove passages; ids that are not in the index are no error."""
        for start in range(0, len(ids), BATCH_SIZE):
            self._remove(ids[start : start + BATCH_SIZE])

    def as_retriever(self, k: int = 5) -> "IndexRetriever":
        """A LangChain retriever for the ``k`` best passages."""
        return IndexRetriever(index=self, k=k)

    @abstractmethod
    def search(self, query: str, k: int = 5) -> list[Document]:
        """At most ``k`` passages, best first; ours have an ``id``, and ``score`` as metadata."""

    async def asearch(self, query: str, k: int = 5) -> list[Document]:
        """`search` in a thread, off the event loop."""
        return await asyncio.to_thread(self.search, query, k)

    @abstractmethod
    def ids(self) -> set[str]:
        """The ids of all passages."""

    def begun(self) -> list[str]:
        """The ids of passages that a killed run was writing: they may be in the index or not."""
        return []

    @abstractmethod
    def __len__(self) -> int:
        """The number of passages."""

    def close(self) -> None:  # noqa: B027 - most indexes hold nothing open
        """Close files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @abstractmethod
    def _write(self, passages: dict[str, Document]) -> int:
        """Add what is new by id, renew the metadata of the rest; return how many were new."""

    @abstractmethod
    def _remove(self, ids: Sequence[str]) -> None: ...


class IndexRetriever(BaseRetriever):
    """The ``k`` best passages of an index; ``invoke(query, k=3)`` overrides ``k`` for a call.

    A query that is too long is cut by the embedder.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    index: Index
    k: int = Field(default=5, ge=1)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return self.index.search(query, k or self.k)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return await self.index.asearch(query, k or self.k)


def indexed_text(document: Document) -> str:
    """The text that is embedded or scored: title, which may alone name the subject, and text."""
    return f"{document.metadata.get('title', '')}\n{document.page_content}".strip()


def passage_id(document: Document) -> str:
    """32 hexadecimal digits that depend on title and text alone."""
    content = json.dumps([document.metadata.get("title", ""), document.page_content])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def storable(document: Document) -> Document:
    """The document with text and metadata that every index can store and give back."""
    pairs = {_key(key): _scalar(value) for key, value in document.metadata.items()}
    metadata = {key: value for key, value in pairs.items() if key and value is not None}
    return Document(valid(document.page_content), metadata=metadata)


def _key(value: object) -> str:
    # Chroma keeps names that begin with these for itself.
    return valid(str(value)).removeprefix("chroma:").lstrip("#$")


def _scalar(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, str | int | float):
        return valid(str(value))
    try:
        return valid(json.dumps(value, ensure_ascii=False, default=str))
    except (TypeError, ValueError, RecursionError):
        return valid(str(value))
