"""Trains the nano rationale model, from the nano generator.

    OMP_WAIT_POLICY=PASSIVE python -m selfcorrect_rag.nano.train_rationales --out DIR

The same command goes on from the newest checkpoint after a kill and ends in the same weights.
"""

import argparse
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from selfcorrect_rag.nano.batches import CHUNK, Batch, Encoded, collate, packed
from selfcorrect_rag.nano.embedded import generator_path
from selfcorrect_rag.nano.rationales import Piece, new_reading, training_texts
from selfcorrect_rag.nano.train import Settings, Trainer, export
from selfcorrect_rag.nano.world import World

RATIONALES = Settings(steps=2000, hints=0.0, early=0.3, rate=2e-3, flat=0.4, threads=1)
"""The first share reads short documents, and fewer of them."""


@dataclass(frozen=True)
class RationaleData:
    """The batch of any step: documents, with all questions on them as branches."""

    settings: Settings
    tokenizer: PreTrainedTokenizerFast

    def __hash__(self) -> int:
        return hash(self.settings)

    def batch(self, step: int) -> Batch:
        """The batch of ``step``, counted from 0."""
        return collate(self._chunk(step // CHUNK)[step % CHUNK])

    @lru_cache(maxsize=1)  # noqa: B019  (one chunk, one stream alive at a time)
    def _chunk(self, number: int) -> list[list[Encoded]]:
        world = World(f"rationales/{self.settings.seed}/{number}")
        early = number * CHUNK < self.settings.early * self.settings.steps
        rows: list[Encoded] = []
        while sum(map(len, rows)) < 1.1 * CHUNK * self.settings.tokens:
            count = world.choice((1, 2, 3)) if early else world.choice((2, 3, 4, 5, 5))
            reading = new_reading(world, count, most=1 if early else world.choice((1, 3, 5)))
            made = encode(self.tokenizer, training_texts(world, reading))
            if len(made) <= self.settings.tokens // 2:
                rows.append(made)
        return packed(rows, self.settings.tokens, world.random)[:CHUNK]


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


def main() -> None:
    """Train and export to DIR/rationale_model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and result")
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(RATIONALES, folder, start=generator_path(), data=RationaleData)
    began, losses = time.time(), []
    for step, _, loss in trainer.run():
        losses.append(loss)
        if step % RATIONALES.log_every == 0 or step == RATIONALES.steps:
            mean = sum(losses) / len(losses)
            print(f"step {step}/{RATIONALES.steps}  loss {mean:.4f}  {time.time() - began:.0f} s")
            losses.clear()
    export(trainer.model, trainer.tokenizer, folder / "rationale_model")


if __name__ == "__main__":
    main()
