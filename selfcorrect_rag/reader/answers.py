"""What is said for the spans that were found: their words, or the sentence around them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from selfcorrect_rag.prompts.sentences import sentence_at
from selfcorrect_rag.reader.questions import asks_for_several, wants_sentence
from selfcorrect_rag.reader.reader import Span

LONGEST_SENTENCE = 300
"""Characters up to which a sentence is said in the place of a span that is unsure."""
ALSO = 0.3
"""Share of the first span's probability from which another one is said too, in a list."""
_LIST_MARK = re.compile(r"^(?:[-*•>]|#{1,6}) (?=\S)")


class Answer(NamedTuple):
    """Words of a passage, and the confidence that they answer."""

    text: str
    confidence: float


def stated(
    question: str,
    passage: str,
    spans: Sequence[Span],
    answer_above: float,
    *,
    sentence: bool = False,
) -> Answer:
    """The answer that the first of ``spans`` gives, in the words of the passage.

    The sentence around it is what questions how to do something and for yes or no get, and what is
    said where only the sentence is above ``answer_above``: where it has the answer, and its edges
    are unsure. Where a question asks for several things, other spans are said too, in the
    passage's order.
    """
    best = spans[0]
    first, last = best.sentence
    is_short = last - first <= LONGEST_SENTENCE
    is_unsure = best.confidence <= answer_above < best.sentence_confidence
    if sentence or wants_sentence(question) or (is_unsure and is_short):
        text = answer_text(passage, *best.place, sentence=True)
        return Answer(text, max(best.confidence, best.sentence_confidence))
    if asks_for_several(question):
        some = [span for span in spans if span.probability >= ALSO * best.probability]
        texts = [
            answer_text(passage, *span.place, sentence=False)
            for span in sorted(some, key=lambda span: span.start)
        ]
        return Answer(", ".join(dict.fromkeys(text for text in texts if text)), best.confidence)
    return Answer(answer_text(passage, *best.place, sentence=False), best.confidence)


def answer_text(text: str, start: int, end: int, *, sentence: bool) -> str:
    """The answer from ``start`` to ``end`` of a passage on one line, or the sentence around it."""
    if sentence:
        return _LIST_MARK.sub("", " ".join(sentence_at(text, start, end).split()))
    return " ".join(text[start:end].split()).strip(" ,;:")
