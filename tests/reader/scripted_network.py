"""A network that finds given words, for exact tests of the code around it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from selfcorrect_rag.reader.network import Row, load_tokenizer
from selfcorrect_rag.reader.reader import Passage, PassageReading, Reader, ReaderCalibration

TOKENIZER: Any = load_tokenizer()
CLS, SEP = (TOKENIZER.token_to_id(token) for token in ("[CLS]", "[SEP]"))


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


class WordNetwork:
    """Starts and ends answers at the words that it looks for, wherever in a row they stand.

    A row with one of them answers. It remembers each row that it reads.
    """

    def __init__(self, *answers: str) -> None:
        self.answers = [ids_of(answer) for answer in answers]
        self.rows: list[list[int]] = []

    @property
    def digest(self) -> str:
        return str(self.answers)

    def run(self, rows: Sequence[Row]) -> list[list[Any]]:
        self.rows += [row.ids for row in rows]
        return [self._logits(row.ids) for row in rows]

    def _logits(self, row: list[int]) -> list[Any]:
        start, end, relevant = np.zeros(len(row)), np.zeros(len(row)), -4.0
        for rank, answer in enumerate(self.answers):
            for at in range(len(row) - len(answer) + 1):
                if row[at : at + len(answer)] == answer:
                    start[at] = end[at + len(answer) - 1] = 20.0 - rank
                    relevant = 4.0
        return [start, end, relevant, len(row) - 4.0]


def word_reader(
    *answers: str, calibration: ReaderCalibration | None = None
) -> tuple[Reader, WordNetwork]:
    """A reader whose network finds these answers."""
    network: Any = WordNetwork(*answers)
    return Reader(network, calibration or ReaderCalibration(), TOKENIZER), network


def read_one(
    reader: Reader, text: str, question: str = "Which?", title: str = ""
) -> PassageReading:
    (reading,) = reader.read([(question, Passage(title, text))])
    return reading
