"""Trains the nano generator by rule: its rows come with the right tokens, where the paper's come
from a critic (see ``train_generator.py``).

    OMP_WAIT_POLICY=PASSIVE python -m nano_training.train_by_rule --out DIR
        [--data DIR [--start DIR]]

From nothing, on made-up text; then, with ``--data``, on real text too, of which stage the weights
before and after are averaged. The same command goes on
from the newest checkpoint after a kill and ends in the same weights.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from nano_training.batches import Batch, Stream, Weights
from nano_training.real_text import with_real_text
from nano_training.rows import EARLY, MAIN, Mixture
from nano_training.trainer import Trainer, TrainingSettings, export, train_and_log


@dataclass(frozen=True)
class Phase:
    """A stretch of training with one mixture."""

    name: str
    mixture: Mixture
    weights: Weights


PHASES = (
    Phase("early", EARLY, Weights(reflection=2.0, passage=0.15)),
    Phase("main", MAIN, Weights(reflection=4.0)),
)
FIRST = TrainingSettings()
REAL = TrainingSettings(steps=1600, easy_share=0.0, learning_rate=2e-3, threads=1, seed=2)
"""The stage with real text, which has no early phase."""


class GeneratorBatches:
    """The batch of any step."""

    def __init__(
        self,
        settings: TrainingSettings,
        tokenizer: PreTrainedTokenizerFast,
        phases: Sequence[Phase] = PHASES,
    ) -> None:
        """``phases``: the early one and the main one."""
        self._starts = (0, round(settings.steps * settings.easy_share))
        self._streams = [
            Stream(
                tokenizer, p.mixture, p.weights, f"{settings.seed}/{p.name}", settings.batch_tokens
            )
            for p in phases
        ]

    def batch(self, step: int) -> Batch:
        """The batch of `step`, counted from 0."""
        phase = max(i for i, start in enumerate(self._starts) if start <= step)
        return self._streams[phase].batch(step - self._starts[phase])


def main() -> None:
    """Train stage by stage, and export to DIR/generator."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for checkpoints and result")
    parser.add_argument("--start", type=Path, help="a generator in place of the first stage's")
    parser.add_argument("--data", type=Path, help="folder of real text, for the second stage")
    args = parser.parse_args()
    if args.start and not args.data:
        parser.error("with --start, --data says what is to be learned")
    start: Path = args.start or args.out / ("made-up" if args.data else "generator")
    if not args.start:
        trainer = _trained(FIRST, args.out / "stage-1", None, PHASES)
        export(trainer.model, trainer.tokenizer, start)
    if args.data:
        phases = [replace(p, mixture=with_real_text(p.mixture, args.data)) for p in PHASES]
        trainer = _trained(REAL, args.out / "stage-2", start, phases)
        export(midway(start, trainer.model), trainer.tokenizer, args.out / "generator")


def _trained(
    settings: TrainingSettings, folder: Path, start: Path | None, phases: Sequence[Phase]
) -> Trainer:
    folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(settings, folder, start=start, data=partial(GeneratorBatches, phases=phases))
    train_and_log(trainer, f"{folder.name} ")
    return trainer


def midway(start: Path, trained: LlamaForCausalLM) -> LlamaForCausalLM:
    """The mean of the weights before and after a training, as they ship.

    It keeps what either knows: the names of made-up text from before, real text from after.
    """
    model: LlamaForCausalLM = LlamaForCausalLM.from_pretrained(start, dtype=torch.float32)
    with torch.no_grad():
        for before, after in zip(model.parameters(), trained.parameters(), strict=True):
            before.lerp_(after.half().float(), 0.5)
    return model


if __name__ == "__main__":
    main()
