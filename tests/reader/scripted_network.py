"""A network that finds given words, for exact tests of what the reader does around it."""

from collections.abc import Sequence
from typing import Any

import torch

from selfcorrect_rag.reader.torch_network import HeadLogits
from selfcorrect_rag.reader.reader import Passage, PassageReading, Reader
from selfcorrect_rag.search.minilm import minilm_tokenizer

TOKENIZER: Any = minilm_tokenizer()
TOKENIZER.no_truncation()
TOKENIZER.no_padding()
TOKENIZER.encode_special_tokens = True
CLS, SEP = (TOKENIZER.token_to_id(token) for token in ("[CLS]", "[SEP]"))


def ids_of(text: str) -> list[int]:
    return list(TOKENIZER.encode(text, add_special_tokens=False).ids)


class WordNetwork:
    """Starts and ends answers at the words that it looks for, wherever in a row they stand.

    A row with one of them answers. It remembers each row that it reads, without padding.
    """

    def __init__(self, *answers: str) -> None:
        self.answers = [ids_of(answer) for answer in answers]
        self.passes: list[list[list[int]]] = []
        self.widths: list[int] = []

    def __call__(self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> HeadLogits:
        rows = [
            row[:length] for row, length in zip(ids.tolist(), mask.sum(1).tolist(), strict=True)
        ]
        self.passes.append(rows)
        self.widths.append(ids.shape[1])
        start, end = torch.zeros(ids.shape), torch.zeros(ids.shape)
        relevant = torch.full((len(rows),), -4.0)
        for i, row in enumerate(rows):
            for rank, answer in enumerate(self.answers):
                for at in places(row, answer):
                    start[i, at] = 20.0 - rank
                    end[i, at + len(answer) - 1] = 20.0 - rank
                    relevant[i] = 4.0
        return HeadLogits(
            start,
            end,
            relevant,
            mask.sum(1).float() - 4.0,
        )

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"answers": torch.tensor([float(sum(answer)) for answer in self.answers])}

    @property
    def rows(self) -> list[list[int]]:
        """Every row that it has read."""
        return [row for rows in self.passes for row in rows]


def places(row: Sequence[int], answer: Sequence[int]) -> list[int]:
    """Where ``answer`` stands in a row."""
    return [
        at
        for at in range(len(row) - len(answer) + 1)
        if list(row[at : at + len(answer)]) == list(answer)
    ]


def word_reader(*answers: str) -> tuple[Reader, WordNetwork]:
    """A reader whose network finds these answers."""
    network: Any = WordNetwork(*answers)
    return Reader(network), network


def read_one(
    reader: Reader, text: str, question: str = "Which?", title: str = ""
) -> PassageReading:
    (reading,) = reader.read([(question, Passage(title, text))])
    return reading
