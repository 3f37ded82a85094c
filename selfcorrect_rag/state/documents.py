"""Documents in a graph's state, which over a wire arrive as JSON objects."""

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
"""Read of what is given at once; a generator may have no end."""
EXPECTED = 'a list of Documents, or of {"page_content": "...", "metadata": {"title": "..."}}'


class DocumentsValue(LastValue[list[Document]]):
    """The last documents that were written, as Documents whatever they came as.

    A server's clients send ``{"page_content": ..., "metadata": {...}}``, be it as input or where
    they edit a thread's state.
    """

    def update(self, values: Sequence[Any]) -> bool:
        return super().update([as_documents(documents) for documents in values])


Documents = Annotated[list[Document], DocumentsValue]


def as_documents(given: object, source: str = "the input") -> list[Document]:
    """Documents, from any list, tuple or generator of them or of JSON objects; the first 10,000.

    Args:
        given: what came.
        source: who gave it, for the message.

    Raises:
        NoDocument: it is something else, or holds something else.
    """
    if inspect.isawaitable(given) or isinstance(given, AsyncIterable):
        if inspect.iscoroutine(given):
            given.close()  # it would warn that nobody awaited it
        raise needs_async(source)
    # A single document, which can be iterated over too, might be a part of what was meant.
    if isinstance(given, str | bytes | Mapping | BaseModel) or not isinstance(given, Iterable):
        raise NoDocument(f"{source} gave {_kind(given)}: give {EXPECTED}")
    first = islice(given, MOST_DOCUMENTS)
    return [_document(document, place, source) for place, document in enumerate(first)]


async def aas_documents(given: object, source: str) -> list[Document]:
    """:func:`as_documents` of what may also have to be awaited or iterated over asynchronously."""
    if inspect.isawaitable(given):
        given = await given
    if isinstance(given, AsyncIterable):
        given = await first_of(given)
    if isinstance(given, Iterator):  # it may search while it is read
        given = await asyncio.to_thread(list, islice(given, MOST_DOCUMENTS))
    return as_documents(given, source)


async def first_of(given: AsyncIterable[Any]) -> list[Any]:
    """As many as are read at once."""
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
