"""Splits long texts into passages that end where sentences end."""

from collections import deque
from collections.abc import Iterator

from selfcorrect_rag.prompts.sentences import Sentence, sentence_spans

CHUNK_WORDS = 120
"""Default length: the papers' passages have 100 words, MiniLM reads about 180 at most."""
CHUNK_OVERLAP = 20
"""Default overlap: about one sentence, so that a pronoun keeps its noun."""


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
    window: deque[Sentence] = deque()
    size = fresh = 0  # words in the window, and how many of them are in no passage yet
    held: tuple[int, int] | None = None  # the last full passage, which may still get the tail
    for sentence in sentence_spans(text, words):
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
