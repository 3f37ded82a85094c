"""Turn the spans that were found into answers: a few words, a sentence, or a rationale."""

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from selfcorrect_rag.reader.reader import Passage, PassageReading, Span

MAX_SENTENCE = 300
"""Characters up to which a sentence is given in place of a span that is unsure."""
LIST_SHARE = 0.3
"""Share of the first span's probability from which another one joins it in a list."""
MAX_NAMED = 20
"""Most documents of each kind that a rationale names."""
_LIST_MARK = re.compile(r"^(?:[-*•>]|#{1,6}) (?=\S)")
_ARTICLE = re.compile(r"(?:an?|the)\s+")
_SENTENCE_QUESTION = re.compile(
    r"\b(?:how (?:do|can|to|would|should|does one|might)|command (?:to|for))\b"
    r"|^(?!.* or )\W*(?:is|are|was|were|do|does|did|can|could|has|have|had|will|would|should|may"
    r"|must)\b",
    re.IGNORECASE | re.DOTALL,
)
"""How to do something, or yes or no."""
_LIST_QUESTION = re.compile(
    r"\b(?:(?:which|what)(?: of the)?(?: [\w-]+){0,2} \w\w+(?<![su])s"
    r" (?:can|could|do|does|did|are|were|may|might|must|have|had|should|will|would|let|need|make)\b"
    r"|(?:what|who|which|where) (?:are|were)\b|(?:name|list) (?:all|the|some)\b)",
    re.IGNORECASE,
)
"""Plurals: "which countries do", "what are the names of"."""


class Answer(NamedTuple):
    """Words of a passage, and the confidence that they answer."""

    text: str
    confidence: float


def is_readable(question: str) -> bool:
    """Return whether most letters of a question are ASCII's: the reader knows English only."""
    letters = [letter for letter in question if letter.isalpha()]
    return bool(letters) and sum(map(str.isascii, letters)) >= 0.7 * len(letters)


def state_answer(question: str, passage: str, spans: Sequence[Span], answer_above: float) -> Answer:
    """Return the answer that the first of ``spans`` gives, in the words of the passage.

    It is the sentence around the span for questions how to do something or for yes or no, and if
    only the sentence's confidence is above ``answer_above``. If the question asks for several
    things, other spans are joined to the first in the passage's order.
    """
    best = spans[0]
    first, last = best.sentence
    is_unsure = best.confidence <= answer_above < best.sentence_confidence
    if _SENTENCE_QUESTION.search(question) or (is_unsure and last - first <= MAX_SENTENCE):
        text = _LIST_MARK.sub("", " ".join(passage[first:last].split()))
        return Answer(text, max(best.confidence, best.sentence_confidence))
    given = [best]
    if _LIST_QUESTION.search(question):
        given = [span for span in spans if span.probability >= LIST_SHARE * best.probability]
    texts = [" ".join(s.text.split()).strip(" ,;:") for s in sorted(given, key=lambda s: s.start)]
    return Answer(", ".join(dict.fromkeys(filter(None, texts))), best.confidence)


def write_rationale(
    question: str,
    documents: Sequence[Passage],
    readings: Sequence[PassageReading],
    answer_above: float,
    refusal: str,
) -> Answer:
    """Write what the documents, numbered from 1, say of the question, and the answer at the end.

    A document answers if the confidence in its answer is above ``answer_above``. Of their answers
    the most probable one is given, as if documents erred independently. The last paragraph names
    the documents that give it; it is ``refusal`` if none answers.
    """
    answers: dict[int, Answer] = {}
    surest = 0.0
    wrong: dict[str, float] = defaultdict(lambda: 1.0)
    for number, (document, reading) in enumerate(zip(documents, readings, strict=True), 1):
        # Of spans that say the same the most confident one counts.
        for key, p in {_normalise(s): s.confidence for s in reversed(reading.spans)}.items():
            wrong[key] *= 1 - p
        if reading.spans:
            given = state_answer(question, document.text, reading.spans, answer_above)
            surest = max(surest, given.confidence)
            if given.confidence > answer_above:
                answers[number] = given
    if not answers:
        return Answer(f"None of the documents answers the question.\n\n{refusal}", 1 - surest)
    spans = {number: readings[number - 1].spans[0] for number in answers}
    keys = {number: _normalise(span) for number, span in spans.items()}
    # If only the sentence is sure, it is surer than the span that documents agree on.
    sure = {n: max(1 - wrong[keys[n]], a.confidence) for n, a in answers.items()}
    best, *others = sorted(answers, key=lambda n: (-sure[n], -answers[n].confidence, n))
    agreeing = [number for number in sorted(answers) if keys[number] == keys[best]]
    lines = []
    for number in sorted([best, *others[: MAX_NAMED - 1]]):
        quote = " ".join(documents[number - 1].text[slice(*spans[number].sentence)].split())
        aside = "" if number in agreeing else ", set aside because it gives another answer"
        lines.append(f"Document [{number}]{aside}: “{quote}”")
    silent = [n for n in range(1, len(documents) + 1) if n not in answers]
    if 0 < len(silent) <= MAX_NAMED:
        lines.append(f"Without an answer: {', '.join(f'document [{n}]' for n in silent)}.")
    agreed = ", ".join(f"document [{n}]" for n in agreeing[:MAX_NAMED])
    lines += ["", f"The question is answered by {agreed}.", f"Answer: {answers[best].text}"]
    return Answer("\n".join(lines), sure[best])


def _normalise(span: Span) -> str:
    """Return what two wordings of an answer have in common."""
    text = _ARTICLE.sub("", span.text.casefold().strip(), count=1)
    return " ".join(re.findall(r"\w+", text)) or span.text
