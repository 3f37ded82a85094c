"""Read passages out of JSON, in the formats of question answering data sets.

- ``{"title": .., "text": ..}``, alone, in a list or one a line
- rows that carry their passages: ``{"question": .., "ctxs": [{"title": .., "text": ..}]}``, also
  as ``paragraphs``, ``contexts``, ``docs`` and so on, at any depth
- HotpotQA's ``"context": [[title, [sentence, ..]], ..]``
- a mapping of titles to sentences, or of ids to rows
- plain strings
"""

from collections.abc import Iterator
from typing import Any, TypeGuard

from langchain_core.documents import Document

_TEXTS = ("text", "paragraph_text", "contents", "content", "page_content", "passage", "body")
"""Fields with a row's text: a string, or sentences that are joined; ``context`` too."""
_LISTS = ("ctxs", "contexts", "context", "paragraphs", "passages", "documents", "docs", "data")
"""Fields with a row's passages."""
MAX_FIELD = 200
"""Most characters of a metadata field; a longer one is content."""


def passages(value: Any) -> Iterator[Document]:
    """Yield the passages of one JSON file, with ``title`` in their metadata ("" if there is none).

    Numbers, booleans and short strings beside a passage become its metadata.
    """
    known = (*_TEXTS, *_LISTS)
    if isinstance(value, dict) and value and not any(key.lower() in known for key in value):
        if all(_is_sentences(item) for item in value.values()):
            value = [[title, sentences] for title, sentences in value.items()]
        elif all(isinstance(item, dict) for item in value.values()):
            value = list(value.values())
    yield from row_passages(value)


def row_passages(value: Any, title: str = "") -> Iterator[Document]:
    """Yield the passages of one row; ``title`` is that of the row around it."""
    match value:
        case str():
            yield Document(value, metadata={"title": title})
        case [str(heading), list(sentences)] if _is_sentences(sentences):
            yield Document(" ".join(sentences), metadata={"title": heading})
        case list():
            for item in value:
                yield from row_passages(item, title)
        case dict():
            fields = {key.lower(): item for key, item in value.items()}
            title = fields["title"] if isinstance(fields.get("title"), str) else title
            for key in (*_TEXTS, "context"):
                text = fields.get(key)
                if key != "context" and _is_sentences(text):
                    text = " ".join(text)
                if isinstance(text, str):
                    others = {name: item for name, item in value.items() if name.lower() != key}
                    yield Document(text, metadata={**_short_fields(others), "title": title})
                    return
            for key in _LISTS:
                yield from row_passages(fields.get(key), title)


def _is_sentences(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _short_fields(row: dict[str, Any]) -> dict[str, str | int | float | bool]:
    return {
        key: item
        for key, item in row.items()
        if isinstance(item, int | float) or (isinstance(item, str) and len(item) <= MAX_FIELD)
    }
