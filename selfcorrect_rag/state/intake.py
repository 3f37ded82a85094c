"""Sanitises untrusted text that enters a run: questions, documents, web pages, edits.

Sanitised text is valid Unicode of bounded length without control characters, and a title is one
line. Notes say what was cut or unreadable. Look-alikes of control tokens are kept here: prompts
quote them (:mod:`selfcorrect_rag.prompts.quoting`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langgraph.types import Overwrite
from pydantic import BaseModel

from selfcorrect_rag.settings.base import LONGEST_TEXT
from selfcorrect_rag.state.sources import title_line

DEEPEST = 20
"""Maximum nesting of lists and objects in an input or in metadata."""
UNREADABLE = "\ufffd"
"""Replaces unreadable characters."""

MOST_KEYS = 1_000
"""Maximum number of metadata keys."""
LONGEST_ID = 1_000
"""Maximum characters of a document's id."""
PLACE = ("title", "source", "url")
"""Metadata keys that say where a document is from."""

_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]+")
_CONTROLS = {
    code: UNREADABLE for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n\r"
} | dict.fromkeys(map(ord, "\v\f\x85"), "\n")


def valid(text: str) -> str:
    """Text that every encoder, tokenizer and database takes.

    Adjacent halves of a surrogate pair are joined into one character; a lone one, as JavaScript
    leaves it where it cuts an emoji, becomes U+FFFD. So does a control character, except that line
    and page breaks become line breaks. All else stays.
    """
    if _UNFIT.search(text) is None:
        return text
    if _HALF.search(text):
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _CONTROL.sub(lambda found: found[0].translate(_CONTROLS), text)


def fit(value: Any, *, depth: int = 0) -> Any:
    """An input value with all its text valid, and none longer than a million characters.

    Recurses into lists, tuples, mappings, messages and Documents, up to 20 levels; anything deeper
    becomes an ellipsis. Other objects are returned unchanged.
    """
    if isinstance(value, str):
        return valid(value[:LONGEST_TEXT])
    if depth == DEEPEST and isinstance(value, Mapping | list | tuple):
        return "\u2026"
    match value:
        case Mapping():
            return {fit(key): fit(item, depth=depth + 1) for key, item in value.items()}
        case list():
            return [fit(item, depth=depth + 1) for item in value]
        case Overwrite():
            return replace(value, value=fit(value.value, depth=depth + 1))
        case tuple() if type(value) is tuple:
            return tuple(fit(item, depth=depth + 1) for item in value)
        case BaseMessage():
            return _copied(value, "content", "name", "id", "additional_kwargs")
        case Document():
            return _copied(value, "page_content", "metadata", "id")
    return value


def _copied(value: BaseModel, *names: str) -> Any:
    """A copy with these fields sanitised; the same object if nothing changes."""
    return _with(value, {name: fit(getattr(value, name)) for name in names})


def _with(value: BaseModel, fields: Mapping[str, Any]) -> Any:
    if all(getattr(value, name) == given for name, given in fields.items()):
        return value
    return value.model_copy(update=fields)


class Admitted(NamedTuple):
    """Sanitised documents, and notes about them."""

    documents: list[Document]
    notes: list[str]


def admit(documents: Sequence[Document], longest: int, what: str) -> Admitted:
    """Documents of bounded length, valid text and titles on one line.

    Args:
        documents: from a retriever, a web search or a caller.
        longest: maximum characters of a document's text, and of its metadata together. Metadata
            values that do not fit are dropped, not cut: part of a source is another source.
        what: their name in notes, such as "web pages".
    """
    found = [_admitted(document, longest) for document in documents]
    cut = sum(len(document.page_content) > longest for document in documents)
    left_out = sum(
        len(kept.metadata) < len(document.metadata)
        for kept, document in zip(found, documents, strict=True)
    )
    unread = sum(UNREADABLE in document.page_content for document in found)
    of = f"of {len(found)} {what}"
    notes = [
        note
        for count, note in (
            (cut, f"{cut} {of} cut to the first {longest:,} characters (document_characters)"),
            (left_out, f"{left_out} {of} lost metadata longer than {longest:,} characters"),
            (unread, f"{unread} {of} hold characters that cannot be read"),
        )
        if count
    ]
    return Admitted(found, notes)


def _admitted(document: Document, longest: int) -> Document:
    fields = {
        "page_content": valid(document.page_content[:longest]),
        "metadata": _metadata(document.metadata, longest),
        "id": fit(document.id and document.id[:LONGEST_ID]),
    }
    return _with(document, fields)  # type: ignore[no-any-return]


def _metadata(given: Mapping[Any, Any], room: int) -> dict[Any, Any]:
    """The metadata that fits, in its own order; title and source have priority."""
    kept: dict[Any, Any] = {}
    first = dict.fromkeys([*islice(given, MOST_KEYS), *(key for key in PLACE if key in given)])
    for key in sorted(first, key=lambda key: key not in PLACE):
        value = given[key]
        value = title_line(value) if key == "title" and value is not None else fit(value)
        if (size := len(str(key)) + len(str(value))) <= room:
            room -= size
            kept[key] = value
    return {fit(key): kept[key] for key in first if key in kept}


def admit_question(question: str, longest: int) -> tuple[str, list[str]]:
    """The question cut to ``longest`` characters, and notes on what was cut or is unreadable."""
    kept, notes = valid(question[:longest]), []
    if len(question) > longest:
        notes.append(f"the question was cut to its first {longest:,} characters")
    if UNREADABLE in kept:
        notes.append("the question holds characters that cannot be read")
    return kept, notes
