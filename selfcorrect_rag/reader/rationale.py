"""The reader's rationale for InstructRAG: what each document says of the question, which of them
help, and the answer. Besides its frame, every word stands in a document."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from selfcorrect_rag.reader.answers import Answer, on_one_line, stated
from selfcorrect_rag.reader.reader import Passage, PassageReading, Span

MOST_NAMED = 20
"""Most documents with an answer that are quoted, and most without one that are named."""
_SINGLE = dict.fromkeys(map(ord, '"“”'), "’")
_STRAIGHT = dict.fromkeys(map(ord, "“”"), '"')
_ARTICLE = re.compile(r"(?:an?|the)\s+")


class Rationale(NamedTuple):
    """A rationale, and the probability of its answer."""

    text: str
    probability: float


class _Answer(NamedTuple):
    """What a document states, which the reader is sure of."""

    number: int
    document: str
    span: Span
    said: Answer

    @property
    def key(self) -> str:
        return _key(self.span)


def rationale(
    question: str,
    documents: Sequence[Passage],
    readings: Sequence[PassageReading],
    answer_above: float,
    refusal: str,
) -> Rationale:
    """What the documents, numbered from 1, say of the question, and the answer.

    A document answers if the reader's confidence in what it states is above ``answer_above``. Of
    their answers the most probable one is given, each document that has it being a witness;
    documents that give others are set aside. Where none answers, ``refusal`` is the conclusion.
    """
    answers, surest = [], 0.0
    for number, (document, reading) in enumerate(zip(documents, readings, strict=True), 1):
        if reading.spans:
            said = stated(question, document.text, reading.spans, answer_above)
            surest = max(surest, said.confidence)
            if said.confidence > answer_above:
                answers.append(_Answer(number, document.text, reading.spans[0], said))
    if not answers:
        return Rationale(f"None of the documents answers the question.\n{refusal}", 1 - surest)
    probabilities = _probabilities(readings)
    # Where only the sentence is sure, it is surer than the span that documents agree on.
    sure = {a.number: max(probabilities[a.key], a.said.confidence) for a in answers}
    answers.sort(key=lambda a: (sure[a.number], a.said.confidence), reverse=True)
    best, told = answers[0], sorted(answers[:MOST_NAMED])
    lines = [f"{_opening(a, best)}: {_quotation(a)}" for a in told]
    silent = {*range(1, len(documents) + 1)} - {a.number for a in answers}
    if silent and len(told) == len(answers):
        lines.append(_without_answer(sorted(silent)))
    lines.append(f"The answer is “{best.said.text.translate(_STRAIGHT)}”.")
    return Rationale("\n".join(lines), sure[best.number])


def _probabilities(readings: Sequence[PassageReading]) -> Mapping[str, float]:
    """The probability of each answer that documents give, as if they erred independently."""
    wrong: dict[str, float] = {}
    for reading in readings:
        confidences: dict[str, float] = {}
        for span in reading.spans:
            confidences.setdefault(_key(span), span.confidence)  # the best one is first
        for key, confidence in confidences.items():
            wrong[key] = wrong.get(key, 1.0) * (1 - confidence)
    return {key: 1 - chance for key, chance in wrong.items()}


def _key(span: Span) -> str:
    """What two wordings of an answer have in common."""
    text = _ARTICLE.sub("", span.text.casefold().strip(), count=1)
    return " ".join(re.findall(r"\w+", text)) or span.text


def _opening(answer: _Answer, best: _Answer) -> str:
    if answer.key == best.key:
        return f"Document [{answer.number}] answers the question"
    return f"Document [{answer.number}] is set aside, since it gives another answer"


def _quotation(answer: _Answer) -> str:
    """The sentence of an answer in quotes, on one line."""
    sentence = answer.document[slice(*answer.span.sentence)]
    return f"“{on_one_line(sentence.translate(_SINGLE))}”"


def _without_answer(numbers: Sequence[int]) -> str:
    if len(numbers) > MOST_NAMED:
        return "The other documents do not answer the question."
    *some, last = (f"[{number}]" for number in numbers)
    if not some:
        return f"Document {last} does not answer the question."
    return f"Documents {', '.join(some)} and {last} do not answer the question."
