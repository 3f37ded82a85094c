"""The training examples: which rows, in which shares, with which negatives."""

import json
import random
from collections.abc import Iterator, Sequence

import bm25s

from reader_training.examples import Encoder, Example
from reader_training.rows import DATA, READING, Row, drawn, encyclopedia, lines, real_rows, tidy
from reader_training.written import QUESTIONS, written_rows

REAL = ("nq", *READING)
SHARES = {"nq": 3.0, "qed": 3.0, "policyqa": 0.5, "covidqa": 0.7, "selqa": 0.5}
"""How often a row of a source comes, against the others' 1."""
WRITTEN = 2.5
"""The same for rows that were written for this training."""
PUBMED_HELD_OUT = 0.2
"""Share of PubMedQA's questions that is set aside."""
DRAWN = 1000
"""Rows that are drawn at once, and retrieved for in one batch."""
RETRIEVED = 12
"""Passages retrieved for a question; those that do not state its answer are negatives."""
POLICIES = "policyqa"
YES_NO, ALONE = 0.02, 0.05
"""Shares of rows that come with a question for yes or no, and with a question alone."""


def all_rows() -> list[Row]:
    """Return real and written rows; none is from a file of the questions on own documents."""
    return [*real_rows().train, *written_rows().train]


def generate_examples(
    rows: Sequence[Row], encoder: Encoder, seed: int, per_row: float
) -> Iterator[Example]:
    """Generate endless examples: rows by their shares, ``per_row`` retrieved passages that do not
    answer for each answerable one, questions for yes or no, and questions alone."""
    drawing, negatives = random.Random(seed), Negatives(rows, encyclopedia())
    weights = [WRITTEN if r.source not in REAL else SHARES.get(r.source, 1.0) for r in rows]
    yes_no, requests = yes_no_rows(), requests_without_evidence()
    while True:
        some = drawing.choices(rows, weights, k=DRAWN)
        answerable = [row for row in some if row.answers]
        wrong = dict(zip(map(id, answerable), negatives.find(answerable), strict=True))
        for row in some:
            if example := encoder.encode_row(row):
                yield example
            if drawing.random() < YES_NO and (
                example := encoder.encode_row(drawing.choice(yes_no), is_yes_no=True)
            ):
                yield example
            if drawing.random() < ALONE:
                needed = drawing.random() < 0.5
                text = row.question if needed else drawing.choice(requests)
                yield encoder.encode_question(text, needed)
            if not row.answers:
                continue
            retrieved = wrong[id(row)][:8]
            count = int(per_row + drawing.random())
            for other in drawing.sample(retrieved, min(count, len(retrieved))):
                if example := encoder.encode_row(other):
                    yield example


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


class Passages:
    """Passages, as pairs of title and text, that BM25 retrieves."""

    def __init__(self, passages: Sequence[tuple[str, str]]) -> None:
        self.passages = list(dict.fromkeys(passages))
        self._index = bm25s.BM25()
        texts = [f"{title} {text}" for title, text in self.passages]
        self._index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)

    def retrieve(self, questions: Sequence[str], count: int) -> list[list[tuple[str, str]]]:
        """Return the ``count`` best passages of each question."""
        tokens = bm25s.tokenize(list(questions), show_progress=False)
        found, _ = self._index.retrieve(tokens, k=count, show_progress=False)
        return [[self.passages[i] for i in places] for places in found]


class Negatives:
    """For each answerable row, the passages most like its question that do not state its answer."""

    def __init__(self, rows: Sequence[Row], further: Sequence[tuple[str, str]]) -> None:
        """Index the passages of the rows, and further ones: pairs of title and text."""
        self._index = Passages([*((row.title, row.passage) for row in rows), *further])
        # Websites' policies answer each other's questions.
        self._policies = {(r.title, r.passage) for r in rows if r.source == POLICIES}

    def find(self, rows: Sequence[Row]) -> list[list[Row]]:
        """Return rows without an answer for each of these rows, most alike first."""
        found = self._index.retrieve([row.question for row in rows], RETRIEVED)
        return [list(self._wrong(row, some)) for row, some in zip(rows, found, strict=True)]

    def _wrong(self, row: Row, passages: Sequence[tuple[str, str]]) -> Iterator[Row]:
        answers = [answer.lower() for answer in row.answers]
        for title, text in passages:
            if row.source == POLICIES and (title, text) in self._policies:
                continue
            if not any(answer in text.lower() for answer in answers):
                yield Row(row.question, title, text, (), f"{row.source}, retrieved")
