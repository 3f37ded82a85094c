"""What the two stages of training read."""

from collections.abc import Iterator

from nano_training.reader.examples import Encoder, Example
from nano_training.reader.negatives import Negatives, encyclopedia
from nano_training.reader.rows import real_rows
from nano_training.reader.stream import examples


def stage_one(encoder: Encoder, seed: int) -> Iterator[Example]:
    """Questions that people wrote, each with half a retrieved passage that does not answer."""
    rows = real_rows().train
    return examples(rows, Negatives(rows, encyclopedia()), encoder, seed, per_row=0.5)


def stage_two(encoder: Encoder, seed: int) -> Iterator[Example]:
    """Those and what rules make, with more passages that do not answer."""
    rows = real_rows().train
    return examples(rows, Negatives(rows, encyclopedia()), encoder, seed + 1, per_row=1.5)
