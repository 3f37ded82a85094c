"""Documents in a graph's state, which arrive as JSON objects from a server's clients."""

import asyncio
import inspect
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any

from langchain_core.documents import Document
from langgraph.channels import LastValue
from pydantic import BaseModel

from selfcorrect_rag.errors import NoDocument

MOST_DOCUMENTS = 10_000
"""Documents read from one input; a generator may be infinite."""
EXPECTED = 'a list of Documents, or of {"page_content": "...", "metadata": {"title": "..."}}'


class DocumentsValue(LastValue[list[Document]]):
    """A channel with the last documents written, converted to Documents.

    A server's clients send ``{"page_content": ..., "metadata": {...}}`` as input or as an edit of a
    thread's state.
    """

    def update(self, values: Sequence[Any]) -> bool:
        return super().update([as_documents(documents) for documents in values])


Documents = Annotated[list[Document], DocumentsValue]


def as_documents(given: object, source: str = "the input") -> list[Document]:
    """Documents, from any list, tuple or generator of them or of JSON objects; the first 10,000.

    Args:
        given: the value to convert.
        source: where it is from, for the error message.

    Raises:
        NoDocument: it is, or contains, something else.
    """
    if inspect.isawaitable(given) or isinstance(given, AsyncIterable):
        if inspect.iscoroutine(given):
            given.close()  # avoids the "never awaited" warning
        raise needs_async(source)
    # A single document is iterable too, but is probably a mistake.
    if isinstance(given, str | bytes | Mapping | BaseModel) or not isinstance(given, Iterable):
        raise NoDocument(f"{source} gave {_kind(given)}: give {EXPECTED}")
    first = islice(given, MOST_DOCUMENTS)
    return [_document(document, place, source) for place, document in enumerate(first)]


async def aas_documents(given: object, source: str) -> list[Document]:
    """:func:`as_documents` that also takes awaitables and async iterables."""
    if inspect.isawaitable(given):
        given = await given
    if isinstance(given, AsyncIterable):
        given = await first_of(given)
    if isinstance(given, Iterator):  # iterating it may do I/O
        given = await asyncio.to_thread(list, islice(given, MOST_DOCUMENTS))
    return as_documents(given, source)


async def first_of(given: AsyncIterable[Any]) -> list[Any]:
    """The first ``MOST_DOCUMENTS`` items."""
    found = []
    async for document in given:
        found.append(document)
        if len(found) == MOST_DOCUMENTS:
            break
    return found


def needs_async(source: str) -> NoDocument:
    """The error to raise where ``source`` is async and was called from sync code."""
    return NoDocument(f"{source} is async: run the graph with ainvoke or astream")


def _document(given: Any, place: int, source: str) -> Document:
    if isinstance(given, Document):
        return given
    fields = given if isinstance(given, Mapping) else {}
    text, metadata, name = (fields.get(key) for key in ("page_content", "metadata", "id"))
    if not isinstance(text, str) or not isinstance(metadata, Mapping | None):
        raise NoDocument(f"{source} gave {_kind(given)} as document {place}: give {EXPECTED}")
    return Document(text, metadata=dict(metadata or {}), id=None if name is None else str(name))


def _kind(given: object) -> str:
    if isinstance(given, Mapping):
        return f"a {type(given).__name__} with {', '.join(map(repr, given)) or 'nothing'}"
    return "None" if given is None else f"a {type(given).__name__}"
