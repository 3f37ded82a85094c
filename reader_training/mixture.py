"""The stream of training rows: which ones, in which shares, with which negatives."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reader_training.examples import cut, scatter
from reader_training.negatives import Negatives
from reader_training.rows import (
    DATA,
    QUESTIONS,
    Row,
    encyclopedia,
    lines,
    real_rows,
    retrieved_rows,
)
from reader_training.written import written_rows

SHARES = {"nq": 3.0, "qed": 3.0, "fairytaleqa": 1.0, "covidqa": 0.7}
SHARES |= {"retrieved: popqa": 6.0, "retrieved: triviaqa": 6.0, "retrieved: multihop": 2.0}
"""How often a row of a source comes."""
WRITTEN = 1.5
"""The same for rows written for this training."""
DRAWN = 1000
"""Rows that are drawn at once, and retrieved for in one batch."""
NEGATIVES = 1.3
"""Rows without an answer for each answerable one whose passage was not retrieved for it."""
ALONE, SCATTERED = 0.05, 0.15
"""Shares of rows that come with a question alone, and with one sentence of their passage, alone or
among some of another page."""


class Drawn(NamedTuple):
    """A row as the reader sees it, with the targets of its judgements; None: no target."""

    row: Row
    relevant: bool | None
    retrieve: bool | None = None


def all_rows() -> list[Row]:
    """Return all rows to train on; none is from a file of the questions on own documents."""
    return [*real_rows().train, *written_rows().train, *retrieved_rows(0, 1)]


def draw_rows(rows: Sequence[Row], seed: int) -> Iterator[Drawn]:
    """Draw endless rows by their shares, cut to windows, with negatives of the answerable ones
    and questions alone."""
    chance, negatives = random.Random(seed), Negatives(rows, encyclopedia())
    weights = [SHARES.get(row.source, WRITTEN) for row in rows]
    requests = requests_without_evidence()
    while True:
        some = chance.choices(rows, weights, k=DRAWN)
        answerable = [row for row in some if row.answers]
        wrong = dict(zip(map(id, answerable), negatives.find(answerable), strict=True))
        for row in some:
            yield _see(row, rows, chance)
            if chance.random() < ALONE:
                needed = chance.random() < 0.5
                text = row.question if needed else chance.choice(requests)
                yield Drawn(Row(text, "", "", (), "alone"), None, needed)
            if row.answers and not row.source.startswith("retrieved"):
                for _ in range(int(NEGATIVES + chance.random())):
                    if other := negatives.draw(row, wrong[id(row)], chance):
                        yield _see(other, rows, chance)


def _see(row: Row, rows: Sequence[Row], chance: random.Random) -> Drawn:
    if chance.random() < SCATTERED:
        row = scatter(row, chance.choice(rows), chance)
    return Drawn(cut(row, chance), bool(row.answers))


def requests_without_evidence() -> list[str]:
    """Return tasks and courtesies that need no passage, and instructions of Self-RAG's own training
    set that were answered without retrieval."""
    requests = (QUESTIONS / "requests.txt").read_text(encoding="utf-8").splitlines()
    selfrag = lines(DATA / "selfrag_generator_train_50samples.jsonl")
    return requests + [r["instruction"] for r in selfrag if "[No Retrieval]" in r["output"]]
