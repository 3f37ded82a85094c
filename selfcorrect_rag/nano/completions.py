"""Prompts that begin alike and their completions, as one row with a branch for each."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from transformers import PreTrainedTokenizerFast

from selfcorrect_rag.nano.batches import Encoded


class Piece(NamedTuple):
    """A stretch of a completion, and how much its tokens count in the loss."""

    text: str
    weight: float = 1.0


def encode(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[tuple[str, Sequence[Piece]]]
) -> Encoded:
    """Prompts that begin alike, and their completions, as one row with a branch for each."""
    prompts = tokenizer([asked for asked, _ in texts])["input_ids"]
    # A completion is encoded on its own, as it will follow the prompt's ids at inference.
    completions = tokenizer(
        [" ".join(piece.text for piece in pieces) for _, pieces in texts],
        add_special_tokens=False,
        return_offsets_mapping=True,
    )
    shared = next(
        (i for i, column in enumerate(zip(*prompts, strict=False)) if len(set(column)) > 1),
        min(map(len, prompts)),
    )
    result = Encoded(
        prompts[0][:shared], [0.0] * shared, list(range(shared)), [0] * shared, [-1.0] * shared
    )
    for branch, (ids, (_, pieces)) in enumerate(zip(prompts, texts, strict=True), start=1):
        written = [*completions["input_ids"][branch - 1], tokenizer.eos_token_id]
        weights = _weights(pieces, completions["offset_mapping"][branch - 1])
        asked = ids[shared:]
        length = len(asked) + len(written)
        result.ids.extend([*asked, *written])
        result.weights.extend([*([0.0] * len(asked)), *weights, 1.0])
        result.positions.extend(range(shared, shared + length))
        result.branch.extend([branch] * length)
        result.answers.extend([-1.0] * length)
    return result


def _weights(pieces: Sequence[Piece], offsets: Sequence[tuple[int, int]]) -> list[float]:
    """The weight of each token: that of the piece in which it ends."""
    ends = list(accumulate(len(piece.text) + 1 for piece in pieces))
    return [pieces[bisect_left(ends, stop)].weight for _, stop in offsets]
