"""Prompts that begin alike and their completions, as one row with a branch for each."""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from transformers import PreTrainedTokenizerFast

from nano_training.batches import CHUNK, Batch, Encoded, collate, packed
from nano_training.trainer import TrainingSettings
from nano_training.world import World


class Piece(NamedTuple):
    """A stretch of a prompt or of a completion."""

    text: str
    weight: float = 1.0
    """How much its tokens count in the loss, where it is of a completion."""
    hint: float = -1.0
    """Target of the auxiliary loss for its tokens; -1 for none."""


class Completion(NamedTuple):
    """A prompt and its completion."""

    prompt: Sequence[Piece]
    """Concatenated."""
    written: Sequence[Piece]
    """Joined by spaces."""


def encode(tokenizer: PreTrainedTokenizerFast, completions: Sequence[Completion]) -> Encoded:
    """Completions whose prompts begin alike as one row with a branch for each."""
    prompts = tokenizer(
        ["".join(piece.text for piece in made.prompt) for made in completions],
        return_offsets_mapping=True,
    )
    # A completion is encoded on its own, as it will follow the prompt's ids at inference.
    written = tokenizer(
        [" ".join(piece.text for piece in made.written) for made in completions],
        add_special_tokens=False,
        return_offsets_mapping=True,
    )
    begun = prompts["input_ids"]
    shared = next(
        (i for i, column in enumerate(zip(*begun, strict=False)) if len(set(column)) > 1),
        min(map(len, begun)),
    )
    hinted = [
        _of(made.prompt, 0, prompts["offset_mapping"][i]) for i, made in enumerate(completions)
    ]
    result = Encoded(
        begun[0][:shared],
        [0.0] * shared,
        list(range(shared)),
        [0] * shared,
        [piece.hint for piece in hinted[0][:shared]],
    )
    for i, made in enumerate(completions):
        own, pieces = begun[i][shared:], _of(made.written, 1, written["offset_mapping"][i])
        ids = [*own, *written["input_ids"][i], tokenizer.eos_token_id]
        result.ids.extend(ids)
        result.weights.extend([*([0.0] * len(own)), *(piece.weight for piece in pieces), 1.0])
        result.positions.extend(range(shared, shared + len(ids)))
        result.branch.extend([i + 1] * len(ids))
        result.hints.extend(piece.hint for piece in (*hinted[i][shared:], *pieces, _END))
    return result


_END = Piece("")


def _of(pieces: Sequence[Piece], between: int, offsets: Sequence[tuple[int, int]]) -> list[Piece]:
    """The piece in which each token ends, where ``between`` characters stand between pieces."""
    ends = list(accumulate(len(piece.text) + between for piece in pieces))
    return [pieces[bisect_left(ends, stop)] for _, stop in offsets]


class BranchedBatches(ABC):
    """The batch of any step of a run, from rows that are drawn without end."""

    name: str
    """With the run's seed, the seed of the rows."""

    def __init__(self, settings: TrainingSettings, tokenizer: PreTrainedTokenizerFast) -> None:
        self.settings, self.tokenizer = settings, tokenizer

    @abstractmethod
    def rows(self, world: World, early: bool) -> list[Encoded]:
        """A few rows; ``early`` ones are easy."""

    def batch(self, step: int) -> Batch:
        """The batch of ``step``, counted from 0."""
        return collate(self._chunk(step // CHUNK)[step % CHUNK])

    @lru_cache(maxsize=1)  # noqa: B019  (one chunk, one run alive at a time)
    def _chunk(self, number: int) -> list[list[Encoded]]:
        world = World(f"{self.name}/{self.settings.seed}/{number}")
        early = number * CHUNK < self.settings.easy_share * self.settings.steps
        rows: list[Encoded] = []
        while sum(map(len, rows)) < 1.1 * CHUNK * self.settings.batch_tokens:
            rows += self.rows(world, early)
        return packed(rows, self.settings.batch_tokens, world.random)[:CHUNK]
