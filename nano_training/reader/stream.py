"""The stream of training examples: which rows, in which shares, with which negatives."""

import random
import re
from collections.abc import Iterator, Sequence

from nano_training.reader.examples import Encoder, Example
from nano_training.reader.mixture import (
    requests_without_evidence,
    selfrag_questions,
    share,
    yes_no_rows,
)
from nano_training.reader.negatives import Negatives
from nano_training.reader.rows import Row

DRAWN = 1000
"""Rows that are drawn at once, and retrieved for in one batch."""
JUDGED = 0.15
"""Share of answerable rows that are also read a second time, with an answer to judge."""
YES_NO, ALONE = 0.03, 0.03
"""Shares of rows that come with a question for yes or no, and with a question alone."""


def examples(
    rows: Sequence[Row], negatives: Negatives, encoder: Encoder, seed: int, per_row: float
) -> Iterator[Example]:
    """Endless examples: rows by their shares, ``per_row`` retrieved passages that do not answer for
    each answerable one, answers to be judged, questions for yes or no and questions alone."""
    drawn = random.Random(seed)
    weights = [share(row) for row in rows]
    yes_no, requests = yes_no_rows(), [*requests_without_evidence(), *selfrag_questions()]
    while True:
        some = drawn.choices(rows, weights, k=DRAWN)
        answerable = [row for row in some if row.answers]
        wrong = dict(zip(map(id, answerable), negatives.of(answerable), strict=True))
        for row in some:
            if example := encoder.reading(row):
                yield example
            if drawn.random() < YES_NO:
                yield encoder.yes_no(*drawn.choice(yes_no))
            if drawn.random() < ALONE:
                needed = drawn.random() < 0.5
                text = row.question if needed else drawn.choice(requests)
                yield encoder.question(text, needed)
            if not row.answers:
                continue
            retrieved = wrong[id(row)][:8]
            count = int(per_row + drawn.random())
            for other in drawn.sample(retrieved, min(count, len(retrieved))):
                if example := encoder.reading(other):
                    yield example
            if drawn.random() < JUDGED:
                yield from _judgements(row, retrieved, encoder, drawn)


def _judgements(
    row: Row, retrieved: Sequence[Row], encoder: Encoder, drawn: random.Random
) -> Iterator[Example]:
    """A right answer, and a wrong one."""
    answer = row.answers[0]
    sentence = sentence_of(row.passage, answer)
    if drawn.random() < 0.3 and sentence != answer:
        yield encoder.judgement(row, sentence, 2, 3)
    else:
        yield encoder.judgement(row, answer, 2, 4)
    if retrieved and drawn.random() < 0.4:
        yield encoder.judgement(drawn.choice(retrieved), answer, 0, 4)
        return
    others = [other for other in like(row.passage, answer) if other.lower() not in answer.lower()]
    if not others:
        return
    other = drawn.choice(others)
    if drawn.random() < 0.25:
        yield encoder.judgement(row, f"{answer} and {other}", 1, 2)
    else:
        yield encoder.judgement(row, other, 0, 1)


def sentence_of(passage: str, answer: str) -> str:
    """The sentence in which an answer stands."""
    at = passage.find(answer)
    ends = (passage.rfind(end, 0, at) for end in (". ", "! ", "? ", "\n "))
    begin = max(end + 2 if end >= 0 else 0 for end in ends)
    stops = [m.end() for m in re.finditer(r"[.!?](?=\s|$)", passage) if m.end() >= at + len(answer)]
    return passage[begin : stops[0] if stops else len(passage)].strip()


def like(passage: str, answer: str) -> list[str]:
    """Other spans that look like the answer: numbers for a number, names for a name, else words."""
    if re.search(r"\d", answer):
        found = re.findall(r"\b(?:[A-Z]\w+ )?\d[\d,.:/-]*\d|\b\d\b", passage)
    elif answer[:1].isupper():
        found = re.findall(r"\b[A-Z][\w'-]+(?: (?:of |the |de )?[A-Z][\w'-]+)*", passage)
    else:
        words, length = passage.split(), len(answer.split())
        found = [" ".join(words[i : i + length]) for i in range(0, len(words) - length, 3)]
    return sorted({span for span in found if span != answer})
