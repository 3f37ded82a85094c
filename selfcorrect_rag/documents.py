"""Documents in a graph's state, which over a wire arrive as JSON objects."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from langchain_core.documents import Document
from langgraph.channels import LastValue

from selfcorrect_rag.errors import NoDocument


class DocumentsValue(LastValue[list[Document]]):
    """The last documents that were written, as Documents whatever they came as.

    A server's clients send ``{"page_content": ..., "metadata": {...}}``, be it as input or where
    they edit a thread's state.
    """

    def update(self, values: Sequence[Any]) -> bool:
        return super().update([as_documents(documents) for documents in values])


Documents = Annotated[list[Document], DocumentsValue]


def as_documents(given: Sequence[Any]) -> list[Document]:
    """Documents, where some may still be JSON objects with ``page_content``.

    Raises:
        NoDocument: one of them is neither.
    """
    return [_document(document, place) for place, document in enumerate(given)]


def _document(given: Any, place: int) -> Document:
    if isinstance(given, Document):
        return given
    text = given.get("page_content") if isinstance(given, Mapping) else None
    if not isinstance(text, str):
        raise NoDocument(
            f"document {place} is none: give a Document, or "
            '{"page_content": "...", "metadata": {"title": "..."}}'
        )
    return Document(text, metadata=given.get("metadata") or {}, id=given.get("id"))
