"""From rows to batches: what is learned in a row, and a stream of batches addressed by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from transformers import PreTrainedTokenizerFast

from selfcorrect_rag.nano.examples import Mixture, row
from selfcorrect_rag.nano.world import World
from selfcorrect_rag.reflection import (
    CONTINUE,
    CONTROL_TOKENS,
    END_PARAGRAPH,
    FULLY_SUPPORTED,
    GROUP_OF,
    PARAGRAPH,
    RELEVANT,
    TOKENS,
    Group,
)

CHUNK = 64
"""Batches made at a time, so that rows of like length share a batch."""


@dataclass(frozen=True)
class Weights:
    """How much a token counts in the loss; the text of a supported segment counts 1."""

    reflection: float = 3.0
    passage: float = 0.0


def token_weights(tokens: Sequence[str], weights: Weights) -> list[float]:
    """The weight of every token of a row, from its tokens alone.

    Nothing counts before the first retrieval token. Each span between <paragraph> and </paragraph>
    counts as a passage on its own, and </paragraph> not at all: whoever retrieves writes it.
    The text of a segment counts nothing unless it is judged fully supported.
    """
    result: list[float] = []
    begun = inside = False
    segment = 0
    for position, token in enumerate(tokens):
        group = GROUP_OF.get(token)
        begun = begun or group is Group.RETRIEVE
        if group:
            weight = weights.reflection
        elif token == END_PARAGRAPH:
            inside, weight = False, 0.0
        else:
            weight = weights.passage if inside else 1.0
        result.append(weight if begun else 0.0)
        if token == PARAGRAPH:
            inside = True
        elif token in (RELEVANT, CONTINUE):
            segment = position + 1
        elif token in TOKENS[Group.ISSUP] and token != FULLY_SUPPORTED:
            result[segment:position] = [0.0] * (position - segment)
    return result


@dataclass(frozen=True)
class Batch:
    """Token ids and loss weights, both (rows, tokens), padded on the right."""

    ids: torch.Tensor
    weights: torch.Tensor


def encode(
    tokenizer: PreTrainedTokenizerFast, rows: Sequence[str], weights: Weights
) -> list[tuple[list[int], list[float]]]:
    """Ids and weights of each row, each encoded in one call."""
    control = {tokenizer.convert_tokens_to_ids(token): token for token in CONTROL_TOKENS}
    encoded: list[list[int]] = tokenizer(list(rows))["input_ids"]
    return [(ids, token_weights([control.get(i, "") for i in ids], weights)) for ids in encoded]


def collate(rows: Sequence[tuple[list[int], list[float]]]) -> Batch:
    """A padded batch, its length a multiple of 16."""
    length = (max(len(ids) for ids, _ in rows) + 15) // 16 * 16
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    weights = torch.zeros(len(rows), length)
    for i, (row_ids, row_weights) in enumerate(rows):
        ids[i, : len(row_ids)] = torch.tensor(row_ids)
        weights[i, : len(row_weights)] = torch.tensor(row_weights)
    return Batch(ids, weights)


@dataclass(frozen=True)
class Stream:
    """An endless deterministic stream of batches of about `tokens` padded tokens."""

    tokenizer: PreTrainedTokenizerFast
    mixture: Mixture
    weights: Weights
    seed: str
    tokens: int = 4096
    longest: int = 640
    """Rows with more tokens than this are left out."""

    def __hash__(self) -> int:
        return hash(self.seed)

    def batch(self, index: int) -> Batch:
        """The batch at `index`."""
        return collate(self._chunk(index // CHUNK)[index % CHUNK])

    @lru_cache(maxsize=1)  # noqa: B019  (one chunk, one stream alive at a time)
    def _chunk(self, number: int) -> list[list[tuple[list[int], list[float]]]]:
        world = World(f"{self.seed}/{number}")
        rows: list[tuple[list[int], list[float]]] = []
        total = 0
        while total < CHUNK * self.tokens:
            made = [row(world, self.mixture) for _ in range(256)]
            fresh = encode(self.tokenizer, made, self.weights)
            rows += [r for r in fresh if len(r[0]) <= self.longest]
            total = sum(len(ids) for ids, _ in rows)
        rows.sort(key=lambda r: len(r[0]))
        batches: list[list[tuple[list[int], list[float]]]] = [[]]
        for r in rows:
            if batches[-1] and (len(batches[-1]) + 1) * ((len(r[0]) + 15) // 16 * 16) > self.tokens:
                batches.append([])
            batches[-1].append(r)
        world.random.shuffle(batches)
        return batches[:CHUNK]
