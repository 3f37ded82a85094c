"""Builds HTML that escapes everything but :class:`Html`."""

import html
import re
from collections.abc import Callable, Iterable

from selfcorrect_rag.state.sources import shown_source, web_address

FOLDED, LONGEST = 700, 20_000
"""Characters of a text shown unfolded, and the maximum in the page."""
LINES = 500
"""Maximum characters of short texts: notes, reasons, queries."""


class Html(str):
    """Markup made here. Adding to it gives a plain string, which is escaped again."""


_VOID = frozenset({"base", "input", "link", "meta"})
_UNSEEN = re.compile(
    "([\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f])\\1*"
)
"""Characters that control a display, reorder text or cannot be seen, in runs of one. Joiners and
soft hyphens, which scripts and emoji need, stay."""


def element(tag: str, *children: object, **attributes: object) -> Html:
    """An element; ``tag`` and attribute names are trusted, everything else is untrusted.

    An attribute is written ``class_`` or ``aria_label``; None and False leave it out, True has no
    value.
    """
    given = "".join(
        f" {name.strip('_').replace('_', '-')}"
        + ("" if value is True else f'="{html.escape(plain(value))}"')
        for name, value in attributes.items()
        if value is not None and value is not False
    )
    close = "" if tag in _VOID else f"{joined(children)}</{tag}>"
    return Html(f"<{tag}{given}>{close}")


def joined(children: Iterable[object]) -> Html:
    """Markup and texts concatenated; None is skipped."""
    return Html(
        "".join(
            child if isinstance(child, Html) else text(child)
            for child in children
            if child is not None
        )
    )


def labelled(words: object, kind: str = "aside", tag: str = "p") -> Html | None:
    """Words in an element of a class; None where there are none."""
    return element(tag, words, class_=kind) if words else None


def text(value: object) -> Html:
    """Escaped text, with invisible characters shown by their code points."""
    shown, end = [], 0
    written = str(value)
    for match in _UNSEEN.finditer(written):
        shown.append(html.escape(written[end : match.start()]))
        shown.append(f'<span class="unseen">{_named(match)}</span>')
        end = match.end()
    return Html("".join([*shown, html.escape(written[end:])]))


def plain(value: object) -> str:
    """The same where no markup can be: in attributes and titles."""
    return _UNSEEN.sub(_named, str(value))


def title(words: str) -> Html:
    """The title of a page, in which no markup can be."""
    return Html(f"<title>{html.escape(plain(words), quote=False)}</title>")


def _named(match: re.Match[str]) -> str:
    times = len(match[0])
    return f"U+{ord(match[1]):04X}" + (f" \u00d7{times}" if times > 1 else "")


def prose(
    value: object,
    shown: int = FOLDED,
    *,
    kind: str = "prose",
    inline: Callable[[str], object] | None = None,
) -> Html:
    """A text in its own direction; long ones are folded, huge ones are cut with a notice.

    ``kind`` is the class of its paragraphs, ``inline`` makes links in it.
    """
    written = str(value)
    if len(written) > LONGEST:
        left = len(written) - LONGEST
        written = f"{written[:LONGEST]} \u2026 ({left:,} characters left out)"

    def paragraph(part: str) -> Html:
        return element("p", inline(part) if inline else part, class_=kind, dir="auto")

    if len(written) <= shown * 1.25:
        return paragraph(written)
    cut = written.rfind(" ", shown // 2, shown)
    cut = shown if cut < 0 else cut
    more = folded(f"{len(written) - cut:,} more characters", paragraph("\u2026" + written[cut:]))
    return joined([paragraph(written[:cut] + " \u2026"), more])


def excerpt(value: object, longest: int = 160) -> str:
    """The beginning of a text, for a line."""
    written = " ".join(str(value)[: 4 * longest].split())
    return written if len(written) <= longest else f"{written[:longest].rstrip()} \u2026"


def marked(written: str, links: Iterable[tuple[int, int, object]]) -> Html:
    """Text with each range (start, end) replaced; ranges are sorted and do not overlap."""
    parts: list[object] = []
    last = 0
    for start, end, link in links:
        parts += [written[last:start], link]
        last = end
    return joined([*parts, written[last:]])


def folded(summary: object, *children: object, is_open: bool = False) -> Html:
    """A disclosure that the reader opens, without a script."""
    return element("details", element("summary", summary), *children, open=is_open)


def address(value: str) -> object:
    """A link if the source is one web address; else its text, if safe to show."""
    if not value or web_address(value) != value:
        return excerpt(shown_source(value))
    return element(
        "a", excerpt(value), href=value, target="_blank", rel="noopener noreferrer nofollow"
    )
