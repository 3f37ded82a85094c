"""Sanitises titles and sources for display: they come from untrusted pages.

Everything that prints a title, a source or a note uses this, so that none can fake a line of a
list, reverse other text, or link to a script.
"""

import re
from urllib.parse import urlsplit

from langchain_core.documents import Document

from selfcorrect_rag.errors import one_line

LONGEST_TITLE, LONGEST_SOURCE = 200, 2_000
"""Maximum characters. A longer title is cut; a longer source is not shown, since part of it is
another source."""
_FILE = re.compile(r"file://[^\s\"'<>\\`]+", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


def title_line(title: object) -> str:
    """A title on one line of at most 200 characters; empty for none."""
    return one_line(title or "", LONGEST_TITLE)


def shown_source(source: object) -> str:
    """The source if it is safe to show: an http, https or file address, or the path of a file.

    Anything else becomes empty: other schemes (``javascript:``, ``data:``) in any case, invisible
    characters, more than 2,000 characters. A path has no colon but a drive's. Several sources are
    joined by a comma and a space; each is checked alone.
    """
    given = str(source or "").strip(" ")
    if not given.isprintable():
        return ""
    parts = (part for part in given.split(", ") if len(part) <= LONGEST_SOURCE)
    return ", ".join(part for part in parts if _is_web(part) or _is_file(part))


def web_address(source: str) -> str:
    """The first web address of a source, plain and safe to link; empty if it has none."""
    return next(filter(_is_web, shown_source(source).split(", ")), "")


def title_of(document: Document) -> str:
    """A document's title on one line; empty where it has none."""
    return title_line(document.metadata.get("title"))


def source_of(document: Document) -> str:
    """A document's source, if it is safe to show."""
    return shown_source(document.metadata.get("source") or document.metadata.get("url"))


def name_of(document: Document) -> str:
    """A document's title, else its first words, on one line."""
    return title_of(document) or one_line(document.page_content[:60])


def place(title: object, source: object) -> str:
    """Title and source, as far as given, on one line."""
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
