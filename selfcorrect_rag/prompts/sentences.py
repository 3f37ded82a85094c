"""Splits text into sentences, in any script."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff"
# Scripts without spaces count by character, and a long run counts as several words.
_WORD = re.compile(rf"[{_WIDE}]|[^\s{_WIDE}]{{1,30}}")
# A sentence or a paragraph ends here. Possessive quantifiers keep hostile whitespace linear.
_BORDER = re.compile(r"(?<=[.!?…])[\"'”’)\]]*+\s++(?![a-z])|(?<=[。！？])|\n\n")


ABBREVIATION = re.compile(
    r"\b(?:[A-HJ-UWYZ]|[JS]r|Mrs?|Ms|[DM]r|Prof|Gen|Rev|Sen|Capt|Lt|Col|St|Mt|Ft|vs|Inc|Co|Ltd"
    r"|refs?|approx|ca)\.$"
)
"""A full stop that ends no sentence; I, V and X more often end a name, as in "World War I."."""
LONGEST_ABBREVIATION = 8
"""Characters at the end of a text that are read for an abbreviation."""
LONGEST_QUOTE = 400
"""Characters of a sentence that are quoted on each side of what is looked for."""


class Sentence(NamedTuple):
    """A sentence as a slice of its text, with the number of its words."""

    start: int
    end: int
    words: int


def sentences(text: str) -> list[str]:
    """The sentences of ``text`` in order, stripped."""
    found = (text[s.start : s.end].strip() for s in sentence_spans(text, len(text) + 1))
    return [sentence for sentence in found if sentence]


def sentence_spans(text: str, longest: int) -> Iterator[Sentence]:
    """The sentences in order, those of more than ``longest`` words in pieces."""
    start = 0
    borders = (match.end() for match in _BORDER.finditer(text))
    for border in (*borders, len(text)):
        count = 0
        for word in _WORD.finditer(text, start, border):
            if count == longest:
                yield Sentence(start, word.start(), count)
                start, count = word.start(), 0
            count += 1
        if count:
            yield Sentence(start, border, count)
        start = border


def sentence_at(text: str, start: int, end: int) -> str:
    """The sentence or line of ``text`` in which its characters from ``start`` to ``end`` stand.

    Several where they cross borders. A sentence is not broken behind an abbreviation, and what is
    far from these characters is left out.
    """
    low = max(text.rfind("\n", 0, start) + 1, start - LONGEST_QUOTE)
    high = min(_before_line_break(text, end), end + LONGEST_QUOTE)
    if low and not text[low - 1].isspace():  # within a word, which is left out
        low = min((i for i in range(low, start) if text[i].isspace()), default=start)
    if high < len(text) and not text[high].isspace():
        high = max((i for i in range(end, high) if text[i].isspace()), default=end)
    around = text[low:high]
    found = list(sentence_spans(around, len(around) + 1))
    starts = [0, *(s.start for b, s in pairwise(found) if not _goes_on(around[b.start : b.end]))]
    first = max((s for s in starts if s <= start - low), default=0)
    last = min((s for s in starts if s >= end - low), default=len(around))
    return around[first:last].strip()


def _before_line_break(text: str, at: int) -> int:
    found = text.find("\n", at)
    return len(text) if found < 0 else found


def _goes_on(sentence: str) -> bool:
    return bool(ABBREVIATION.search(sentence.rstrip()[-LONGEST_ABBREVIATION:]))
