"""The stream of training examples: which rows, in which shares, with which negatives."""

import random
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
YES_NO, ALONE = 0.02, 0.05
"""Shares of rows that come with a question for yes or no, and with a question alone."""


def examples(
    rows: Sequence[Row], negatives: Negatives, encoder: Encoder, seed: int, per_row: float
) -> Iterator[Example]:
    """Endless examples: rows by their shares, ``per_row`` retrieved passages that do not answer for
    each answerable one, questions for yes or no and questions alone."""
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
                yield encoder.decides(drawn.choice(yes_no))
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
