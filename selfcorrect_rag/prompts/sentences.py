"""Splits text into sentences, in any script."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff"
# Scripts without spaces count by character, and a long run counts as several words.
_WORD = re.compile(rf"[{_WIDE}]|[^\s{_WIDE}]{{1,30}}")
# A sentence or a paragraph ends here. Possessive quantifiers keep hostile whitespace linear.
_BORDER = re.compile(r"(?<=[.!?…])[\"'”’)\]]*+\s++(?![a-z])|(?<=[。！？])|\n\n")


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
