"""Titles and sources as they may be shown: they come from pages that nobody has vouched for.

Whatever prints a title, a source or a note takes it from here, so that none can pass for a second
line of a list, for another text's direction, or for a link that runs something.
"""

import re
from urllib.parse import urlsplit

from langchain_core.documents import Document

from selfcorrect_rag.errors.messages import one_line

LONGEST_TITLE, LONGEST_SOURCE = 200, 2_000
"""Characters. A longer title is cut; a longer source is not shown, since a part of it is another
source."""
_FILE = re.compile(r"file://[^\s\"'<>\\`]+", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def title_line(title: object) -> str:
    """A title on one line of at most 200 characters; empty for none."""
    return one_line(title or "", LONGEST_TITLE)


def shown_source(source: object) -> str:
    """The source where it may be shown: an http, https or file address, or the path of a file.

    Anything else is empty: other schemes (``javascript:``, ``data:``), whatever their case, names
    with characters that cannot be seen, and what is longer than 2,000 characters. A path holds no
    colon but that of a drive. Several sources are joined by a comma and a space, and each is looked
    at alone.
    """
    given = str(source or "").strip(" ")
    if not given.isprintable():
        return ""
    parts = (part for part in given.split(", ") if len(part) <= LONGEST_SOURCE)
    return ", ".join(part for part in parts if _is_web(part) or _is_file(part))


def web_address(source: str) -> str:
    """The source where it is a plain web address, which may become a link; else empty."""
    return source if shown_source(source) == source and _is_web(source) else ""


def title_of(document: Document) -> str:
    """A document's title on one line; empty where it has none."""
    return title_line(document.metadata.get("title"))


def source_of(document: Document) -> str:
    """Where a document is from, as far as it may be shown."""
    return shown_source(document.metadata.get("source") or document.metadata.get("url"))


def name_of(document: Document) -> str:
    """A document's title, else how it begins, on one line."""
    return title_of(document) or one_line(document.page_content[:60])


def place(title: object, source: object) -> str:
    """Where something is from, on one line: title and source, whichever there are."""
    parts = (title_line(title), shown_source(source))
    return ", ".join(dict.fromkeys(part for part in parts if part))


def _is_web(source: str) -> bool:
    if re.search(r"[\s\"'<>\\`]", source):
        return False
    try:
        parts = urlsplit(source)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc


def _is_file(source: str) -> bool:
    if _FILE.fullmatch(source):
        return True
    rest = _DRIVE.sub("", source, count=1) if _DRIVE.match(source) else source
    return bool(rest.strip()) and ":" not in rest and not rest.startswith("//")
