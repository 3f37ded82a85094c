"""Trains the nano rationale model, from the nano generator.

    OMP_WAIT_POLICY=PASSIVE python -m nano_training.train_rationales --out DIR

The same command goes on from the newest checkpoint after a kill and ends in the same weights.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from nano_training.batches import Encoded
from nano_training.completions import BranchedBatches, encode
from nano_training.rationale_data import ABOUT_OFFSET, completions, new_document_set
from nano_training.trainer import Trainer, TrainingSettings, export, train_and_log
from nano_training.world import World
from selfcorrect_rag.nano import generator_path

FIRST = TrainingSettings(
    steps=1700, hint_weight=0.3, easy_share=0.3, learning_rate=2e-3, decay_start=0.3, threads=1
)
"""The first share reads short documents, and fewer of them."""
STAGES = (
    FIRST,
    replace(FIRST, steps=500, easy_share=0.0, learning_rate=1e-3, decay_start=0.12, seed=2),
)
MANTISSA = 4
"""Bits kept in the matrices of the result: as good when evaluated, and 5 MB in a wheel, not 8."""


class DocumentTagger(torch.nn.Module):
    """Which document a token is of, read after the second layer, and which it is about, before the
    last: what can be looked up by number need not be looked up by name."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.of = torch.nn.Linear(width, ABOUT_OFFSET)
        self.about = torch.nn.Linear(width, ABOUT_OFFSET)

    def forward(self, states: Sequence[torch.Tensor], hints: torch.Tensor) -> torch.Tensor:
        of, about = (hints >= 0) & (hints < ABOUT_OFFSET), hints >= ABOUT_OFFSET
        read = self.of(states[2][of]), self.about(states[-2][about])
        numbers = hints[of], hints[about] - ABOUT_OFFSET
        losses = [cross_entropy(r.float(), n.long()) for r, n in zip(read, numbers, strict=True)]
        return torch.stack(losses).sum()


class RationaleBatches(BranchedBatches):
    """Documents, with all questions on them as branches."""

    name = "rationales"

    def rows(self, world: World, early: bool) -> list[Encoded]:
        count = world.choice((1, 2, 3)) if early else world.choice((2, 3, 4, 5, 5))
        shared = new_document_set(world, count, most=1 if early else world.choice((1, 3, 5)))
        made = encode(self.tokenizer, completions(world, shared))
        return [made] if len(made) <= self.settings.batch_tokens // 2 else []


def main() -> None:
    """Train stage by stage and export to DIR/rationale_model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and result")
    folder: Path = parser.parse_args().out
    start = generator_path()
    for number, settings in enumerate(STAGES, start=1):
        stage = folder / f"stage-{number}"
        stage.mkdir(parents=True, exist_ok=True)
        trainer = Trainer(
            settings, stage, start=start, data=RationaleBatches, hint_head=DocumentTagger
        )
        train_and_log(trainer, f"stage {number} ")
        start = (folder if number == len(STAGES) else stage) / "rationale_model"
        last = number == len(STAGES)
        export(trainer.model, trainer.tokenizer, start, MANTISSA if last else None)


if __name__ == "__main__":
    main()
