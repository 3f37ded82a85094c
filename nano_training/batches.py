"""Training rows in tokens, the weight of each token in the loss, and batches by step."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Protocol, TypeVar

import torch
from transformers import PreTrainedTokenizerFast

from nano_training.rows import Mixture, TrainingRow, new_row
from nano_training.world import World
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
        begun = begun or group == Group.RETRIEVE
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
class Encoded:
    """A row in tokens. Branches stand one after the other; `branch` is 0 in what they share."""

    ids: list[int]
    weights: list[float]
    positions: list[int]
    branch: list[int]
    hints: list[float]
    """Targets of the auxiliary loss, such as 1 where a token is part of the answer and 0 elsewhere;
    -1 for none."""

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right, every field of shape (rows, tokens) and as in `Encoded`."""

    ids: torch.Tensor
    weights: torch.Tensor
    positions: torch.Tensor
    branch: torch.Tensor
    hints: torch.Tensor


def encode(
    tokenizer: PreTrainedTokenizerFast, rows: Sequence[TrainingRow], weights: Weights
) -> list[Encoded]:
    """Each row in tokens; every branch begins with a control token, so that it can be encoded on
    its own."""
    vocabulary = tokenizer.get_vocab()
    control = {vocabulary[token]: token for token in CONTROL_TOKENS}
    texts = tokenizer([made.text for made in rows], return_offsets_mapping=True)
    branches = [branch for made in rows for branch in made.branches]
    rest = iter(tokenizer(branches, add_special_tokens=False)["input_ids"])
    result = []
    for made, ids, offsets in zip(rows, texts["input_ids"], texts["offset_mapping"], strict=True):
        encoded = _encoded(ids, [next(rest) for _ in made.branches], control, weights)
        encoded.hints[: len(ids)] = _answers(made, offsets)
        result.append(encoded)
    return result


def _encoded(
    text: list[int], branches: Sequence[list[int]], control: dict[int, str], weights: Weights
) -> Encoded:
    shared = len(text)
    result = Encoded(list(text), [], list(range(shared)), [0] * shared, [-1.0] * shared)
    for number, branch in enumerate(branches, start=1):
        counted = token_weights([control.get(i, "") for i in (*text, *branch)], weights)
        if number == 1:
            result.weights.extend(counted[:shared])
        else:
            counted[shared] = 0.0  # what precedes it in the row is not what it follows
        result.ids.extend(branch)
        result.weights.extend(counted[shared:])
        result.positions.extend(range(shared, shared + len(branch)))
        result.branch.extend([number] * len(branch))
        result.hints.extend([-1.0] * len(branch))
    return result


def _answers(row: TrainingRow, offsets: Sequence[tuple[int, int]]) -> list[float]:
    """Which tokens of a row's text are its answer, where they stand in its last passage."""
    if row.answer is None:
        return [-1.0] * len(offsets)
    begin, end = row.text.rindex(PARAGRAPH) + len(PARAGRAPH), row.text.rindex(END_PARAGRAPH)
    spans = spans_of(row.answer, row.text, begin, end)
    return [
        -1.0
        if start < begin or stop > end or start == stop
        else float(any(start < last and first < stop for first, last in spans))
        for start, stop in offsets
    ]


def spans_of(answer: str, text: str, begin: int, end: int) -> list[tuple[int, int]]:
    """Where ``answer`` stands as whole words in ``text[begin:end]``, in any case; an empty one
    nowhere."""
    pattern = rf"(?<!\w){re.escape(answer)}(?!\w)"
    found = re.finditer(pattern, text[begin:end], re.IGNORECASE) if answer else ()
    return [(begin + match.start(), begin + match.end()) for match in found]


def collate(rows: Sequence[Encoded]) -> Batch:
    """A padded batch, its length a multiple of 16."""
    length = (max(map(len, rows)) + 15) // 16 * 16

    def pad(name: str, kind: torch.dtype, fill: int = 0) -> torch.Tensor:
        table = torch.full((len(rows), length), fill, dtype=kind)
        for i, encoded in enumerate(rows):
            table[i, : len(encoded)] = torch.tensor(getattr(encoded, name), dtype=kind)
        return table

    return Batch(
        pad("ids", torch.long),
        pad("weights", torch.float32),
        pad("positions", torch.long),
        pad("branch", torch.long),
        pad("hints", torch.float32, -1),
    )


class Sized(Protocol):
    """Something with a length in tokens."""

    def __len__(self) -> int: ...


T = TypeVar("T", bound=Sized)


def packed(rows: Sequence[T], tokens: int, chance: Random, multiple: int = 1) -> list[list[T]]:
    """Batches of rows of like length, in random order.

    Each has at most ``tokens`` tokens once padded to a ``multiple``; a longer row goes alone.
    """
    batches: list[list[T]] = [[]]
    for fresh in sorted(rows, key=len):
        length = -(-len(fresh) // multiple) * multiple
        if batches[-1] and (len(batches[-1]) + 1) * length > tokens:
            batches.append([])
        batches[-1].append(fresh)
    chance.shuffle(batches)
    return batches


@dataclass(frozen=True)
class Stream:
    """An endless deterministic stream of batches of about `tokens` padded tokens."""

    tokenizer: PreTrainedTokenizerFast
    mixture: Mixture
    weights: Weights
    seed: str
    tokens: int = 4096
    max_length: int = 640
    """Rows with more tokens than this are left out."""

    def __hash__(self) -> int:
        return hash(self.seed)

    def batch(self, index: int) -> Batch:
        """The batch at `index`."""
        return collate(self._chunk(index // CHUNK)[index % CHUNK])

    @lru_cache(maxsize=1)  # noqa: B019  (one chunk, one stream alive at a time)
    def _chunk(self, number: int) -> list[list[Encoded]]:
        world = World(f"{self.seed}/{number}")
        rows: list[Encoded] = []
        total = 0
        while total < CHUNK * self.tokens:
            made = [new_row(world, self.mixture) for _ in range(256)]
            fresh = encode(self.tokenizer, made, self.weights)
            rows += [r for r in fresh if len(r) <= self.max_length]
            total = sum(len(r) for r in rows)
        return packed(rows, self.tokens, world.random, multiple=16)[:CHUNK]
