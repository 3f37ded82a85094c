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
"""Most documents with an answer that a rationale quotes, and most without one that it names."""
_LIST_MARK = re.compile(r"^(?:[-*•>]|#{1,6}) (?=\S)")
_ARTICLE = re.compile(r"(?:an?|the)\s+")
_INPUT = "## Input:\n\n"
"""Self-RAG's mark between a task's instruction and the question."""
_HOW_TO = re.compile(
    r"\b(?:how (?:do|can|to|would|should|does one|might)|command (?:to|for))\b", re.IGNORECASE
)
_YES_NO = re.compile(
    r"^\W*(?:is|are|was|were|do|does|did|can|could|has|have|had|will|would|should|may|must)\b",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"\b(?:(?:which|what)(?: of the)?(?: [\w-]+){0,2} \w\w+(?<![su])s"
    r" (?:can|could|do|does|did|are|were|may|might|must|have|had|should|will|would|let|need|make)\b"
    r"|(?:what|who|which|where) (?:are|were)\b|(?:name|list) (?:all|the|some)\b)",
    re.IGNORECASE,
)
_COMMON = re.compile(
    r"\b(?:an?|about|and|any|are|as|at|be|by|can|did|do|does|for|from|ha[ds]|have|how|i|in|is|it|its"
    r"|me|my|of|on|or|than|that|the|their|there|this|to|was|we|were|what|when|where|which|who|whom"
    r"|whose|why|will|with|would|you|your)\b",
    re.IGNORECASE,
)


class Answer(NamedTuple):
    """Words of a passage, and the confidence that they answer."""

    text: str
    confidence: float


def plain_question(instruction: str) -> str:
    """Return the question alone, without a task's instruction before it."""
    return instruction.rpartition(_INPUT)[2].strip()


def is_readable(question: str) -> bool:
    """Whether the reader, which knows English only, can be expected to understand the question.

    Text in another script is not, nor is a question of five words or more without one of the
    commonest English words.
    """
    letters = [letter for letter in question if letter.isalpha()]
    if not letters or sum(letter.isascii() for letter in letters) < 0.7 * len(letters):
        return False
    return len(question.split()) < 5 or bool(_COMMON.search(question))


def wants_sentence(question: str) -> bool:
    """Whether a sentence or a line answers it better than a few words: how-to and yes-or-no."""
    is_yes_no = bool(_YES_NO.search(question)) and " or " not in question.lower()
    return is_yes_no or bool(_HOW_TO.search(question))


def asks_for_several(question: str) -> bool:
    """Whether it asks for several things: "which countries do", "what are the names of"."""
    return bool(_SEVERAL.search(question))


def state_answer(
    question: str,
    passage: str,
    spans: Sequence[Span],
    answer_above: float,
    *,
    sentence: bool = False,
) -> Answer:
    """Return the answer that the first of ``spans`` gives, in the words of the passage.

    It is the sentence around the span if ``sentence`` or the question ask for it, or if only the
    sentence's confidence is above ``answer_above``. If the question asks for several things, other
    spans are joined to the first in the passage's order.
    """
    best = spans[0]
    first, last = best.sentence
    is_unsure = best.confidence <= answer_above < best.sentence_confidence
    if sentence or wants_sentence(question) or (is_unsure and last - first <= MAX_SENTENCE):
        text = _LIST_MARK.sub("", on_one_line(passage[first:last]))
        return Answer(text, max(best.confidence, best.sentence_confidence))
    if asks_for_several(question):
        likely = [span for span in spans if span.probability >= LIST_SHARE * best.probability]
        texts = [span_text(span) for span in sorted(likely, key=lambda span: span.start)]
        return Answer(", ".join(dict.fromkeys(filter(None, texts))), best.confidence)
    return Answer(span_text(best), best.confidence)


def span_text(span: Span) -> str:
    """Return the words of a span on one line, without punctuation around them."""
    return on_one_line(span.text).strip(" ,;:")


def on_one_line(text: str) -> str:
    """Return the text with single spaces for all white space."""
    return " ".join(text.split())


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
    for number, (document, reading) in enumerate(zip(documents, readings, strict=True), 1):
        if reading.spans:
            given = state_answer(question, document.text, reading.spans, answer_above)
            surest = max(surest, given.confidence)
            if given.confidence > answer_above:
                answers[number] = given
    if not answers:
        return Answer(f"None of the documents answers the question.\n\n{refusal}", 1 - surest)
    spans = {number: readings[number - 1].spans[0] for number in answers}
    wrong: dict[str, float] = defaultdict(lambda: 1.0)
    for reading in readings:
        confidences: dict[str, float] = {}
        for span in reading.spans:
            confidences.setdefault(_normalise(span), span.confidence)  # the best one is first
        for key, confidence in confidences.items():
            wrong[key] *= 1 - confidence
    # If only the sentence is sure, it is surer than the span that documents agree on.
    sure = {n: max(1 - wrong[_normalise(spans[n])], a.confidence) for n, a in answers.items()}
    best = max(answers, key=lambda n: (sure[n], answers[n].confidence, -n))
    agreeing = [n for n in answers if _normalise(spans[n]) == _normalise(spans[best])]
    quoted = sorted(sorted(answers, key=lambda n: -sure[n])[:MAX_NAMED])
    lines = []
    for number in quoted:
        sentence = on_one_line(documents[number - 1].text[slice(*spans[number].sentence)])
        aside = "" if number in agreeing else ", set aside because it gives another answer"
        lines.append(f"Document [{number}]{aside}: “{sentence}”")
    silent = [n for n in range(1, len(documents) + 1) if n not in answers]
    if 0 < len(silent) <= MAX_NAMED:
        lines.append(_documents(silent, "does not answer", "do not answer"))
    conclusion = _documents(agreeing[:MAX_NAMED], "answers", "answer")
    text = "\n".join([*lines, "", conclusion, f"Answer: {answers[best].text}"])
    return Answer(text, sure[best])


def _normalise(span: Span) -> str:
    """Return what two wordings of an answer have in common."""
    text = _ARTICLE.sub("", span.text.casefold().strip(), count=1)
    return " ".join(re.findall(r"\w+", text)) or span.text


def _documents(numbers: Sequence[int], singular: str, plural: str) -> str:
    *others, last = (f"[{number}]" for number in numbers)
    if not others:
        return f"Document {last} {singular} the question."
    return f"Documents {', '.join(others)} and {last} {plural} the question."
