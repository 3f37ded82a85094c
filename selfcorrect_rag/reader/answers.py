"""What is said for the spans that were found: their words, or the sentence around them."""

import re
from collections.abc import Sequence
from typing import NamedTuple

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
        text = on_one_line(passage[first:last])
        return Answer(_LIST_MARK.sub("", text), max(best.confidence, best.sentence_confidence))
    if asks_for_several(question):
        some = [span for span in spans if span.probability >= ALSO * best.probability]
        texts = [span_text(span) for span in sorted(some, key=lambda span: span.start)]
        return Answer(", ".join(dict.fromkeys(text for text in texts if text)), best.confidence)
    return Answer(span_text(best), best.confidence)


def span_text(span: Span) -> str:
    """The words of a span on one line, without punctuation around them."""
    return on_one_line(span.text).strip(" ,;:")


def on_one_line(text: str) -> str:
    """With single spaces for all white space."""
    return " ".join(text.split())
