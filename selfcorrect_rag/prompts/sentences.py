"""Splits text into sentences, in any script."""

import re
from collections.abc import Iterator
from itertools import islice, pairwise

_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff"
"""Scripts without spaces between words."""
# A sentence or a paragraph ends here. Possessive quantifiers keep hostile whitespace linear.
_BORDER = re.compile(r"(?<=[.!?…])[\"'”’)\]]*+\s++(?![a-z])|(?<=[。！？])|\n\n")
_ABBREVIATION = re.compile(
    r"\b(?:[A-HJ-UWYZ]|[JS]r|Mrs?|Ms|[DM]r|Prof|Gen|Rev|Sen|Capt|Lt|Col|St|Mt|Ft|vs|Inc|Co|Ltd"
    r"|refs?|approx|ca)\.$"
)
"""A full stop that ends no sentence; I, V and X more often end a name, as in "World War I."."""
LONGEST_QUOTE = 400
"""Characters of a sentence that are quoted on each side of a quoted place."""
_WRAPPED = 50
"""Least characters of a line that may be wrapped."""
_LONGEST_SAID, _MOST_PLACES = 1_000, 20
"""Characters of a text that is looked for in another, and places of it that are compared."""


def sentences(text: str) -> list[str]:
    """Return the sentences of ``text`` in order, stripped."""
    return [text[start:end].strip() for start, end in _spans(text)]


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the sentences in order."""
    start = 0
    for border in (*(match.end() for match in _BORDER.finditer(text)), len(text)):
        if text[start:border].strip():
            yield start, border
        start = border


def sentence_place(text: str, start: int, end: int) -> tuple[int, int]:
    """Return start and end of the sentence or line that holds characters ``start`` to ``end``.

    Of several sentences if these characters cross borders. A sentence is not broken behind an
    abbreviation, nor at a wrapped line, and text far from these characters is left out.
    """
    low = _line_start(text, start, max(0, start - LONGEST_QUOTE))
    high = _line_end(text, end, min(len(text), end + LONGEST_QUOTE))
    if low and not text[low - 1].isspace():  # within a word, which is left out
        low = min((i for i in range(low, start) if text[i].isspace()), default=start)
    if high < len(text) and not text[high].isspace():
        high = max((i for i in range(end, high) if text[i].isspace()), default=end)
    around = text[low:high]
    starts = [0]
    for (begin, border), (following, _) in pairwise(_spans(around)):
        if not _ABBREVIATION.search(around[begin:border].rstrip()[-8:]):
            starts.append(following)
    first = max((s for s in starts if s <= start - low), default=0)
    last = min((s for s in starts if s >= end - low), default=len(around))
    found = around[first:last]
    first += low + len(found) - len(found.lstrip())
    return first, first + len(found.strip())


def sentence_stating(text: str, said: str, question: str) -> str:
    """Return the sentence or line of ``text`` that holds ``said`` word for word, on one line.

    Whitespace and punctuation around ``said`` may differ. Of several sentences, the one with the
    most words of the question. Empty without any, and if ``said`` proves nothing (one letter,
    "yes") or is too long for a sentence.
    """
    said = " ".join(said.split()).strip(" .,;:!?\"'“”‘’")
    is_little = len(said) < 2 and not said.isdigit()
    if is_little or said.lower() in ("yes", "no", "true", "false") or len(said) > _LONGEST_SAID:
        return ""
    asked = set(re.findall(r"\w+", question.lower()))
    wanted = r"\s+".join(map(re.escape, said.split()))
    edge = rf"[^\W{_WIDE}]"
    before = rf"(?<!{edge})" if re.match(edge, said) else ""
    after = rf"(?!{edge})" if re.search(rf"{edge}$", said) else ""
    places = islice(re.finditer(f"{before}{wanted}{after}", text), _MOST_PLACES)
    found = [" ".join(text[slice(*sentence_place(text, *m.span()))].split()) for m in places]
    return max(found, key=lambda s: len(asked & set(re.findall(r"\w+", s.lower()))), default="")


def _line_start(text: str, at: int, least: int) -> int:
    """Return where the line begins, or the paragraph if its lines are wrapped."""
    while (found := text.rfind("\n", least, at)) >= 0 and _is_wrapped(text, found):
        at = found
    return max(found + 1, least)


def _line_end(text: str, at: int, most: int) -> int:
    """Return where the line ends, or the paragraph if its lines are wrapped."""
    while (found := text.find("\n", at, most)) >= 0 and _is_wrapped(text, found):
        at = found + 1
    return most if found < 0 else found


def _is_wrapped(text: str, at: int) -> bool:
    """Return whether a line break is in a long line that goes on with a small letter."""
    before = text[max(0, at - _WRAPPED) : at]
    behind = text[at + 1 : at + 1 + _WRAPPED].lstrip(" ")
    is_long = len(before) == _WRAPPED and "\n" not in before
    return is_long and not before.rstrip().endswith((".", "!", "?", ":")) and behind[:1].islower()
