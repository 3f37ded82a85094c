"""Splits text into sentences, in any script."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff"
# Scripts without spaces count by character, and a long run counts as several words.
_WORD = re.compile(rf"[{_WIDE}]|[^\s{_WIDE}]{{1,30}}")
_SPACELESS = re.compile(f"[{_WIDE}]")
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


WRAPPED = 50
"""Characters of a line that may be wrapped, at least."""


LONGEST_SAID = 1_000
"""Characters of a text that is looked for in another."""
MOST_PLACES = 20
"""Places at which a text stands in another that are compared."""
_SAYS_LITTLE = frozenset(("yes", "no", "true", "false"))
"""Answers that are seldom meant where a text has these words."""


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
    """The sentence or line of ``text`` in which its characters from ``start`` to ``end`` stand; see
    :func:`sentence_place`."""
    return text[slice(*sentence_place(text, start, end))]


def sentence_place(text: str, start: int, end: int) -> tuple[int, int]:
    """Where the sentence or line of :func:`sentence_at` begins and ends, without space around it.

    Several where the characters cross borders. A sentence is not broken behind an abbreviation, nor
    where a long line is wrapped, and what is far from these characters is left out.
    """
    low = _line_start(text, start, max(0, start - LONGEST_QUOTE))
    high = _line_end(text, end, min(len(text), end + LONGEST_QUOTE))
    if low and not text[low - 1].isspace():  # within a word, which is left out
        low = min((i for i in range(low, start) if text[i].isspace()), default=start)
    if high < len(text) and not text[high].isspace():
        high = max((i for i in range(end, high) if text[i].isspace()), default=end)
    around = text[low:high]
    found = list(sentence_spans(around, len(around) + 1))
    starts = [0, *(s.start for b, s in pairwise(found) if not _goes_on(around[b.start : b.end]))]
    first = max((s for s in starts if s <= start - low), default=0)
    last = min((s for s in starts if s >= end - low), default=len(around))
    first += len(around[first:last]) - len(around[first:last].lstrip())
    return low + first, low + first + len(around[first:last].rstrip())


def sentence_stating(text: str, said: str, question: str) -> str:
    """The sentence or line of ``text`` in which ``said`` stands word for word, on one line.

    Whitespace may differ, and punctuation around ``said``. Of several, the one with the most words
    of the question. Empty where there is none, where so little is said that it proves nothing (one
    letter, "yes"), and where so much is that it is no sentence.
    """
    said = " ".join(said.split()).strip(" .,;:!?\"'“”‘’")
    says_little = said.lower() in _SAYS_LITTLE or (len(said) < 2 and not said.isdigit())
    if says_little or len(said) > LONGEST_SAID:
        return ""
    asked = _words(question)
    found = [" ".join(sentence_at(text, *place).split()) for place in _places(text, said)]
    return max(found, key=lambda sentence: len(asked & _words(sentence)), default="")


def _places(text: str, said: str) -> Iterator[tuple[int, int]]:
    """Where ``said``, of single spaces, stands in a text as whole words."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    plain = " ".join(text[start:end] for start, end in words)
    begins = list(accumulate((end - start + 1 for start, end in words), initial=0))
    at = -1
    for _ in range(MOST_PLACES):
        at = plain.find(said, at + 1)
        if at < 0:
            return
        if _is_word(plain, at, at + len(said)):
            first, last = (bisect_right(begins, i) - 1 for i in (at, at + len(said) - 1))
            start = words[first][0] + at - begins[first]
            end = words[last][0] + at + len(said) - begins[last]
            yield start, end


def _is_word(text: str, start: int, end: int) -> bool:
    """Whether no word of the text is cut at either end; some scripts have no spaces."""
    around = (text[max(start - 1, 0) : start + 1], text[end - 1 : end + 1])
    return not any(len(p) == 2 and p.isalnum() and not _SPACELESS.search(p) for p in around)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _line_start(text: str, at: int, least: int) -> int:
    """Where the line begins, or the paragraph if its lines are wrapped; ``least`` at least."""
    while True:
        found = text.rfind("\n", least, at)
        if found < 0 or not _is_wrapped(text, found):
            return max(found + 1, least)
        at = found


def _line_end(text: str, at: int, most: int) -> int:
    """Where it ends; ``most`` at most."""
    while True:
        found = text.find("\n", at, most)
        if found < 0 or not _is_wrapped(text, found):
            return most if found < 0 else found
        at = found + 1


def _is_wrapped(text: str, at: int) -> bool:
    """Whether a line break is one of a long line that goes on with a small letter."""
    before = text[max(0, at - WRAPPED) : at]
    behind = text[at + 1 : at + 1 + WRAPPED].lstrip(" ")
    is_long = len(before) == WRAPPED and "\n" not in before
    return is_long and not before.rstrip().endswith((".", "!", "?", ":")) and behind[:1].islower()


def _goes_on(sentence: str) -> bool:
    return bool(ABBREVIATION.search(sentence.rstrip()[-LONGEST_ABBREVIATION:]))
