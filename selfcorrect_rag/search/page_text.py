"""Extracts the text of a web page, given as HTML or as text."""

import re
from collections.abc import Mapping

from selfcorrect_rag.errors import require

_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
"""Characters that parsers reject: NUL, and halves of surrogate pairs."""
_CONTROL = re.compile(r"[^\S\n ]|[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff]")
"""Control characters, zero widths and marks of writing direction."""
_UNREAD = frozenset({"script", "style"})
"""Elements whose content is not text."""
_OPEN = """area base body br col colgroup dd dt embed head hr html img input li link meta optgroup
option p rp rt source tbody td tfoot th thead tr track wbr"""
_CONTAINERS = """article aside blockquote center div dl em figure font footer form h1 h2 h3 h4 h5 h6
header main nav ol section span strong table ul"""
_MAY_LACK_END_TAG = frozenset(f"{_OPEN} {_CONTAINERS}".split())
"""Elements whose end tag is optional in HTML, and those whose end tag is lost when a page is cut
short. Any other tag without an end tag is text, such as ``<a>`` in prose."""
_BLOCKS = frozenset(
    [
        *("article", "aside", "blockquote", "br", "caption", "dd", "div", "dl", "dt", "figure"),
        *("footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main"),
        *("nav", "ol", "p", "pre", "section", "table", "title", "tr", "ul"),
    ]
)
"""Elements that begin and end a line."""
_BEGINS = re.compile(
    r"<(?:(?P<comment>!--)|(?P<name>[a-z][a-z0-9:-]{0,40})(?=[\s/>])|/[a-z]|!doctype\b|\?[a-z])?",
    re.IGNORECASE,
)
_END_TAG = re.compile(r"</([a-z][a-z0-9:-]{0,40})", re.IGNORECASE)


def page_text(page: str) -> str:
    """The text of a page in lines, without markup, control and invisible characters.

    Look-alikes of tags are text: ``a < b``, ``List<int>``, a ``<script>`` without an end tag. Runs
    of spaces become one, empty lines are dropped. Takes time linear in the page.

    Raises:
        MissingExtra: lxml is not installed.
    """
    text = _NO_TEXT.sub(" ", page)
    if "<" in text or "&" in text:
        text = _without_markup(_stray_tags_as_text(text))
    lines = (_CONTROL.sub(" ", line) for line in text.splitlines())
    return "\n".join(kept for line in lines if (kept := " ".join(line.split())))


def _stray_tags_as_text(text: str) -> str:
    """HTML in which each ``<`` that begins no complete markup is escaped.

    A parser would take look-alikes for tags, and all text after an open comment or script for its
    content, and so lose words of a plain text.
    """
    ends = {match[1].lower(): match.start() for match in _END_TAG.finditer(text)}  # the last ones
    comments, tags = text.rfind("-->"), text.rfind(">")

    def shown(match: re.Match[str]) -> str:
        name = (match["name"] or "").lower()
        if match["comment"]:
            end = comments
        elif match[0] == "<":
            end = -1
        else:
            needs_end = name and name not in _MAY_LACK_END_TAG
            end = ends.get(name, -1) if needs_end else tags
        return match[0] if end > match.start() else f"&lt;{match[0][1:]}"

    return _BEGINS.sub(shown, text)


class _TextTarget:
    """The parser's target: collects text, with a new line or a space for each tag."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._unread = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._parts.append("\n" if tag in _BLOCKS else " ")
        self._unread += tag in _UNREAD

    def end(self, tag: str) -> None:
        self._parts.append("\n" if tag in _BLOCKS else " ")
        self._unread -= tag in _UNREAD

    def comment(self, text: str) -> None:
        self._parts.append(" ")

    def data(self, text: str) -> None:
        if not self._unread:
            self._parts.append(text)

    def close(self) -> str:
        return "".join(self._parts)


def _without_markup(html: str) -> str:
    etree = require("lxml.etree", "files")
    # With a target the parser builds no tree, which is slow when deep.
    parser = etree.HTMLParser(target=_TextTarget(), huge_tree=True)
    parser.feed(html)
    text: str = parser.close()
    return text
