"""What every index does: hold each passage once, and find passages for a question."""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field

from selfcorrect_rag.search.index_faults import named_faults
from selfcorrect_rag.state.intake import valid

CHROMA_FILE = "chroma.sqlite3"
BM25_FILE = "bm25.sqlite3"
BATCH_SIZE = 128
"""Passages embedded and written at once; what a killed run can lose."""


def is_index(path: Path) -> bool:
    """Whether the folder ``path`` holds an index of this package."""
    return holds(path, CHROMA_FILE) or holds(path, BM25_FILE)


def holds(folder: Path, file: str) -> bool:
    """Whether ``file`` is in ``folder``.

    Raises:
        UnreadableIndex: the folder may not be read.
    """
    with named_faults(folder, OSError):
        return (folder / file).exists()


class Index(ABC):
    """Passages in a folder.

    A passage is known by its title and text (`passage_id`): adding it again adds nothing, and
    gives it the metadata it comes with. An empty index finds nothing, and that is no error.
    """

    path: Path
    """The folder."""
    embedder: str
    """What the passages were embedded with, as recorded in the folder."""

    def add(
        self,
        documents: Iterable[Document],
        *,
        batch_size: int = BATCH_SIZE,
        on_batch: Callable[[int], None] | None = None,
    ) -> int:
        """Write documents, and return how many were not in the index before.

        Args:
            documents: Taken as they are, one passage each; those without text are left out.
                Metadata values other than numbers, booleans and strings become JSON text, and
                None is dropped.
            batch_size: Documents embedded and written at once. A batch is written whole or not.
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
        """At most ``k`` passages, best first, with ``id``, and ``score`` in their metadata."""

    @abstractmethod
    async def asearch(self, query: str, k: int = 5) -> list[Document]:
        """`search` without blocking the event loop."""

    @abstractmethod
    def ids(self) -> set[str]:
        """The ids of all passages."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of passages."""

    def close(self) -> None:  # noqa: B027 - most indexes hold nothing open
        """Let go of files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def _write(self, passages: dict[str, Document]) -> int:
        """Add what is new by id, renew the metadata of the rest; return how many were new."""

    @abstractmethod
    def _remove(self, ids: Sequence[str]) -> None: ...


class IndexRetriever(BaseRetriever):
    """The ``k`` best passages of an index; ``invoke(query, k=3)`` gives another number for a call.

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
    """What is embedded: the title, which often holds the only mention of the subject, and text."""
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
