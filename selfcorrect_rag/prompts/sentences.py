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
_ABBREVIATION = re.compile(
    r"\b(?:[A-HJ-UWYZ]|[JS]r|Mrs?|Ms|[DM]r|Prof|Gen|Rev|Sen|Capt|Lt|Col|St|Mt|Ft|vs|Inc|Co|Ltd"
    r"|refs?|approx|ca)\.$"
)
"""A full stop that ends no sentence; I, V and X more often end a name, as in "World War I."."""
LONGEST_QUOTE = 400
"""Characters of a sentence that are quoted on each side of a quoted place."""
_WRAPPED = 50
"""Least characters of a line that may be wrapped."""
_LONGEST_SAID = 1_000
"""Characters of a text that is looked for in another."""
_MOST_PLACES = 20
"""Places at which a text stands in another that are compared."""


class Sentence(NamedTuple):
    """A sentence as a slice of its text, with the number of its words."""

    start: int
    end: int
    words: int


def sentences(text: str) -> list[str]:
    """Return the sentences of ``text`` in order, stripped."""
    found = (text[s.start : s.end].strip() for s in sentence_spans(text, len(text) + 1))
    return [sentence for sentence in found if sentence]


def sentence_spans(text: str, longest: int) -> Iterator[Sentence]:
    """Yield the sentences in order, those of more than ``longest`` words in pieces."""
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
    found = list(sentence_spans(around, len(around) + 1))
    ended = (s.start for b, s in pairwise(found) if not _goes_on(around[b.start : b.end]))
    starts = [0, *ended]
    first = max((s for s in starts if s <= start - low), default=0)
    last = min((s for s in starts if s >= end - low), default=len(around))
    first += len(around[first:last]) - len(around[first:last].lstrip())
    return low + first, low + first + len(around[first:last].rstrip())


def sentence_stating(text: str, said: str, question: str) -> str:
    """Return the sentence or line of ``text`` that holds ``said`` word for word, on one line.

    Whitespace and punctuation around ``said`` may differ. Of several sentences, the one with the
    most words of the question. Empty without any, and if ``said`` proves nothing (one letter,
    "yes") or is too long for a sentence.
    """
    words = said.split()
    said = " ".join(words).strip(" .,;:!?\"'“”‘’")
    is_little = len(said) < 2 and not said.isdigit()
    if is_little or said.lower() in ("yes", "no", "true", "false") or len(said) > _LONGEST_SAID:
        return ""
    asked = set(re.findall(r"\w+", question.lower()))
    wanted = r"\s+".join(map(re.escape, said.split()))
    edge = rf"[^\W{_WIDE}]"  # some scripts have no spaces between words
    before = rf"(?<!{edge})" if re.match(edge, said) else ""
    after = rf"(?!{edge})" if re.search(rf"{edge}$", said) else ""
    best, most = "", -1
    for count, match in enumerate(re.finditer(f"{before}{wanted}{after}", text)):
        if count == _MOST_PLACES:
            break
        sentence = " ".join(text[slice(*sentence_place(text, *match.span()))].split())
        shared = len(asked & set(re.findall(r"\w+", sentence.lower())))
        if shared > most:
            best, most = sentence, shared
    return best


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


def _goes_on(sentence: str) -> bool:
    return bool(_ABBREVIATION.search(sentence.rstrip()[-8:]))
