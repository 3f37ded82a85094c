"""Sanitises untrusted text that enters a run: questions, documents, web pages, titles, sources.

Notes say what was cut or unreadable. Look-alikes of control tokens stay: prompts quote them
(:func:`selfcorrect_rag.prompts.parts.quoted`).
"""

import asyncio
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from itertools import islice
from pathlib import PurePath
from typing import Any
from uuid import UUID

from langchain_core.documents import Document
from pydantic import BaseModel

from selfcorrect_rag.errors import NoDocument, one_line

MOST_DOCUMENTS = 10_000
"""Documents read from one input; a generator may be infinite."""
EXPECTED = 'a list of Documents, or of {"page_content": "...", "metadata": {"title": "..."}}'
MAX_DEPTH, MAX_KEYS, MAX_ID = 20, 1_000, 1_000
"""Nesting of metadata; keys, and items of one list; characters of a document's id."""
MAX_TITLE, MAX_SOURCE = 200, 2_000
"""Maximum characters. A longer title is cut; a longer source is not shown."""
UNREADABLE = "\ufffd"
"""Replaces unreadable characters."""
PLACE = ("title", "source", "url")
"""Metadata keys that say where a document is from; they have priority."""

_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_WEB = re.compile(r"https?://(?!:)[^\s\"'<>\\`/?#@]+(?:[/?#][^\s\"'<>\\`]*)?", re.IGNORECASE)
_FILE = re.compile(
    r"(?i:file)://[^\s\"'<>\\`]+|/(?!/)(?:(?!//)[^:]|(?<=\d):)+|(?:[A-Za-z]:[\\/])?(?!//)[^\S:]*[^:\s][^:]*"
)


def valid(text: str) -> str:
    """Return text that every encoder, tokenizer and database takes: halves of a surrogate pair are
    joined, line and page breaks become line breaks, and other control characters U+FFFD."""
    if _UNFIT.search(text) is None:
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return _UNFIT.sub(UNREADABLE, re.sub("[\v\f\x85]", "\n", joined))


def admit_question(question: str, max_characters: int) -> tuple[str, list[str]]:
    """Return the question, cut and valid, and notes on what was cut or is unreadable."""
    kept, notes = valid(question[:max_characters]), []
    if len(question) > max_characters:
        notes.append(f"the question was cut to its first {max_characters:,} characters")
    if UNREADABLE in kept:
        notes.append("the question holds characters that cannot be read")
    return kept, notes


def admit(
    documents: Sequence[Document], max_characters: int, what: str
) -> tuple[list[Document], list[str]]:
    """Return documents of bounded length, valid text and plain metadata, and notes about them.

    A text has at most ``max_characters``, and so have its metadata together. Metadata values that
    do not fit are dropped, not cut. Notes call the documents ``what``, such as "web pages". A value
    that is not data, such as a function, raises `NoDocument`.
    """
    found, cut, dropped, unread = [], 0, 0, 0
    for place, document in enumerate(documents):
        text = valid(document.page_content[:max_characters])
        metadata = _admitted_metadata(document.metadata, max_characters, f"{what}, {place}")
        name = None if document.id is None else valid(document.id[:MAX_ID])
        cut += len(document.page_content) > max_characters
        dropped += len(metadata) < len(document.metadata)
        unread += UNREADABLE in text
        changes = {"page_content": text, "metadata": metadata, "id": name}
        found.append(document.model_copy(update=changes))
    faults = {
        f"cut to the first {max_characters:,} characters (document_characters)": cut,
        f"lost metadata longer than {max_characters:,} characters": dropped,
        "hold characters that cannot be read": unread,
    }
    return found, [f"{n} of {len(found)} {what} {fault}" for fault, n in faults.items() if n]


def _admitted_metadata(given: Mapping[Any, Any], room: int, where: str) -> dict[str, Any]:
    """The metadata that fits, in its own order; title and source have priority."""
    kept: dict[Any, Any] = {}
    first = dict.fromkeys([*islice(given, MAX_KEYS), *(key for key in PLACE if key in given)])
    for key in sorted(first, key=lambda key: key not in PLACE):
        value = given[key]
        is_title = key == "title" and value is not None
        value = title_line(value) if is_title else plain(value, f"{where}: metadata {key!r}")
        if (size := len(str(key)) + len(str(value))) <= room:
            room -= size
            kept[key] = value
    return {valid(str(key)): kept[key] for key in first if key in kept}


def plain(value: Any, where: str, depth: int = 0) -> Any:
    """Return a value as JSON can hold it: numpy scalars and arrays, paths, dates and sets too."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | PurePath | UUID):
        return valid(str(value))
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if depth == MAX_DEPTH:
        return "\u2026"
    if isinstance(value, Mapping):
        items = islice(value.items(), MAX_KEYS)
        return {valid(str(key)): plain(item, where, depth + 1) for key, item in items}
    if isinstance(value, list | tuple | set | frozenset | range):
        return [plain(item, where, depth + 1) for item in islice(value, MAX_KEYS)]
    if hasattr(value, "tolist"):  # numpy and torch
        return plain(value.tolist(), where, depth + 1)
    raise NoDocument(f"{where} is {_kind(value)}: give text, numbers, lists or dicts")


def as_documents(given: object, source: str = "the input") -> list[Document]:
    """Read the first 10,000 documents of a list, tuple or generator of them or of JSON objects."""
    if inspect.iscoroutine(given):
        given.close()  # avoids the "never awaited" warning
    if inspect.isawaitable(given):
        raise NoDocument(f"{source} is async: run the graph with ainvoke or astream")
    # A single document is iterable too, but is probably a mistake.
    if isinstance(given, str | bytes | Mapping | BaseModel) or not isinstance(given, Iterable):
        raise NoDocument(f"{source} gave {_kind(given)}: give {EXPECTED}")
    first = islice(given, MOST_DOCUMENTS)
    return [_as_document(document, place, source) for place, document in enumerate(first)]


async def aas_documents(given: object, source: str) -> list[Document]:
    """Read documents as :func:`as_documents`, from awaitables too."""
    if inspect.isawaitable(given):
        given = await given
    if isinstance(given, Iterator):  # iterating it may do I/O
        given = await asyncio.to_thread(list, islice(given, MOST_DOCUMENTS))
    return as_documents(given, source)


def _as_document(given: Any, place: int, source: str) -> Document:
    if isinstance(given, Document):
        return given
    fields = given if isinstance(given, Mapping) else {}
    text, metadata, name = (fields.get(key) for key in ("page_content", "metadata", "id"))
    if not isinstance(text, str) or not isinstance(metadata, Mapping | None):
        raise NoDocument(f"{source} gave {_kind(given)} as document {place}: give {EXPECTED}")
    return Document(text, metadata=dict(metadata or {}), id=None if name is None else str(name))


def _kind(given: object) -> str:
    kind = "None" if given is None else f"a {type(given).__name__}"
    return f"{kind} with {', '.join(map(repr, given))}" if isinstance(given, Mapping) else kind


def title_line(title: object) -> str:
    """Return a title on one line of at most 200 characters; empty for none."""
    return one_line(title or "", MAX_TITLE)


def shown_source(source: object) -> str:
    """Return the source if it is safe to show: an http, https or file address, or a file's path.

    Anything else becomes empty: other schemes, invisible characters, more than 2,000 characters. A
    path has no colon but a drive's, or behind a digit if it begins with a slash. Sources joined by
    a comma and a space are checked one by one.
    """
    given = str(source or "").strip(" ")
    parts = [part for part in given.split(", ") if len(part) <= MAX_SOURCE]
    shown = [part for part in parts if _WEB.fullmatch(part) or _FILE.fullmatch(part)]
    return ", ".join(shown) if given.isprintable() else ""


def web_address(source: str) -> str:
    """Return the first web address of a source, plain and safe to link; empty if it has none."""
    return next(filter(_WEB.fullmatch, shown_source(source).split(", ")), "")


def title_of(document: Document) -> str:
    """Return a document's title on one line; empty if it has none."""
    return title_line(document.metadata.get("title"))


def source_of(document: Document) -> str:
    """Return a document's source, if it is safe to show."""
    return shown_source(document.metadata.get("source") or document.metadata.get("url"))


def name_of(document: Document) -> str:
    """Return a document's title, else its first words, on one line."""
    return title_of(document) or one_line(document.page_content[:60])
