"""The stream of training rows: which ones, in which shares, with which negatives."""

import json
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reader_training.examples import cut, scatter
from reader_training.negatives import Negatives
from reader_training.rows import (
    DATA,
    READING,
    Row,
    drawn,
    encyclopedia,
    lines,
    real_rows,
    retrieved_rows,
    tidy,
)
from reader_training.written import QUESTIONS, written_rows

REAL = ("nq", *READING)
SHARES = {
    "nq": 3.0,
    "qed": 3.0,
    "fairytaleqa": 1.0,
    "policyqa": 0.5,
    "covidqa": 0.7,
    "selqa": 0.5,
    "retrieved: popqa": 6.0,
    "retrieved: triviaqa": 6.0,
    "retrieved: multihop": 2.0,
}
"""How often a row of a source comes."""
WRITTEN = 2.0
"""The same for rows written for this training."""
PUBMED_HELD_OUT = 0.2
"""Share of PubMedQA's questions that is set aside."""
DRAWN = 1000
"""Rows that are drawn at once, and retrieved for in one batch."""
NEGATIVES = 1.3
"""Rows without an answer for each answerable one whose passage was not retrieved for it."""
YES_NO, ALONE, SCATTERED = 0.02, 0.05, 0.1
"""Shares of rows that come with a question for yes or no, with a question alone, and with their
answer among sentences of another page."""


class Drawn(NamedTuple):
    """A row as the reader sees it, with the targets of its judgements; None: no target."""

    row: Row
    relevant: bool | None
    retrieve: bool | None = None


def all_rows() -> list[Row]:
    """Return all rows to train on; none is from a file of the questions on own documents."""
    return [*real_rows().train, *written_rows().train, *retrieved_rows()]


def draw_rows(rows: Sequence[Row], seed: int) -> Iterator[Drawn]:
    """Draw endless rows by their shares, cut to windows, with negatives of the answerable ones,
    questions for yes or no, and questions alone."""
    chance, negatives = random.Random(seed), Negatives(rows, encyclopedia())
    weights = [SHARES.get(row.source, WRITTEN) for row in rows]
    yes_no, requests = yes_no_rows(), requests_without_evidence()
    while True:
        some = chance.choices(rows, weights, k=DRAWN)
        answerable = [row for row in some if row.answers]
        wrong = dict(zip(map(id, answerable), negatives.find(answerable), strict=True))
        for row in some:
            seen = row
            if chance.random() < SCATTERED:
                seen = scatter(row, chance.choice(rows), chance)
            yield Drawn(cut(seen, chance), bool(row.answers))
            if chance.random() < YES_NO:
                yield Drawn(cut(chance.choice(yes_no), chance), True)
            if chance.random() < ALONE:
                needed = chance.random() < 0.5
                text = row.question if needed else chance.choice(requests)
                yield Drawn(Row(text, "", "", (), "alone"), None, needed)
            if row.answers and not row.source.startswith("retrieved"):
                for _ in range(int(NEGATIVES + chance.random())):
                    if other := negatives.draw(row, wrong[id(row)], chance):
                        yield Drawn(cut(other, chance), False)


def yes_no_rows() -> list[Row]:
    """Return yes-or-no questions: PubMedQA with its abstract, StrategyQA with its facts."""
    rows = []
    for found in json.loads((DATA / "pubmedqa_pqal_1000.json").read_text()).values():
        text = tidy(" ".join(found["CONTEXTS"][-2:]))
        if not drawn(found["QUESTION"], PUBMED_HELD_OUT):
            rows.append(Row(found["QUESTION"], "", text, (), "pubmedqa"))
    strategyqa = json.loads((DATA / "strategyqa_dev_229.json").read_text())
    return rows + [
        Row(found["question"], "", " ".join(found["facts"]), (), "strategyqa")
        for found in strategyqa
    ]


def requests_without_evidence() -> list[str]:
    """Return tasks and courtesies that need no passage, and instructions of Self-RAG's own training
    set that were answered without retrieval."""
    requests = (QUESTIONS / "requests.txt").read_text(encoding="utf-8").splitlines()
    selfrag = lines(DATA / "selfrag_generator_train_50samples.jsonl")
    return requests + [r["instruction"] for r in selfrag if "[No Retrieval]" in r["output"]]
