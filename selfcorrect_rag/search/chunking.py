"""Long texts in passages that end where sentences end."""

import re
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

CHUNK_WORDS = 120
"""Default length: the papers' passages have 100 words, MiniLM reads about 180 at most."""
CHUNK_OVERLAP = 20
"""Default overlap: about one sentence, so that a pronoun keeps its noun."""

_WIDE = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff"
# Scripts written without spaces count by character, and no run counts as one word for ever.
_WORD = re.compile(rf"[{_WIDE}]|[^\s{_WIDE}]{{1,30}}")
# A sentence or a paragraph ends here. Possessive quantifiers keep hostile whitespace linear.
_BORDER = re.compile(r"(?<=[.!?…])[\"'”’)\]]*+\s++(?![a-z])|(?<=[。！？])|\n\n")


class _Sentence(NamedTuple):
    start: int
    end: int
    words: int


def chunk(text: str, words: int = CHUNK_WORDS, overlap: int = CHUNK_OVERLAP) -> Iterator[str]:
    """Cut ``text`` into passages, each a stripped slice of it.

    Whole sentences are packed up to ``words`` words; a longer sentence is cut. A passage repeats
    the last sentences of the one before as far as they fit into ``overlap`` words. A tail of a
    quarter of ``words`` or less stays with the passage before, which is then that much longer.

    Raises:
        ValueError: not 0 <= overlap < words.
    """
    if not 0 <= overlap < words:
        raise ValueError(f"chunks of {words} words cannot overlap by {overlap}")
    window: deque[_Sentence] = deque()
    size = fresh = 0  # words in the window, and those of them that no passage holds yet
    held: tuple[int, int] | None = None  # the last full passage, which may still get the tail
    for sentence in _sentences(text, words):
        if fresh and size + sentence.words > words:
            if held:
                yield text[slice(*held)].strip()
            held = window[0].start, window[-1].end
            fresh = 0
            while window and size > min(overlap, words - sentence.words):
                size -= window.popleft().words
        window.append(sentence)
        size += sentence.words
        fresh += sentence.words
    if held and fresh <= words // 4:
        yield text[held[0] :].strip()
        return
    if held:
        yield text[slice(*held)].strip()
    if window:
        yield text[window[0].start :].strip()


def sentences(text: str) -> list[str]:
    """The sentences of ``text`` in order, stripped."""
    found = (text[s.start : s.end].strip() for s in _sentences(text, len(text) + 1))
    return [sentence for sentence in found if sentence]


def _sentences(text: str, longest: int) -> Iterator[_Sentence]:
    """The sentences in order, those of more than ``longest`` words in pieces."""
    start = 0
    borders = (match.end() for match in _BORDER.finditer(text))
    for border in (*borders, len(text)):
        count = 0
        for word in _WORD.finditer(text, start, border):
            if count == longest:
                yield _Sentence(start, word.start(), count)
                start, count = word.start(), 0
            count += 1
        if count:
            yield _Sentence(start, border, count)
        start = border
