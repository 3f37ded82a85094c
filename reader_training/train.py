"""Train the reader from MiniLM's weights: ``python -m reader_training.train --out FOLDER``.

Stage 1 reads the real sets, stage 2 the questions written for this training too, with more
passages that were retrieved and do not answer. A run that was cut resumes from its checkpoint.
"""

import argparse
import os
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import binary_cross_entropy_with_logits

from reader_training.examples import Batch, Encoder, batches
from reader_training.mixture import all_rows, generate_examples
from reader_training.rows import Row, real_rows
from reader_training.torch_network import HeadLogits, pretrained

NEGATIVES = (0.5, 1.3)
"""Retrieved passages that do not answer for each row that is answered, in each stage."""

BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
"""CPU capabilities, as torch names them, of which any multiplies matrices in bfloat16."""


@dataclass(frozen=True)
class ReaderSettings:
    """Hyperparameters; two runs with the same ones on one machine end in the same weights."""

    stages: tuple[int, int] = (1000, 2900)
    """Optimiser steps of each stage."""
    batch_tokens: int = 4096
    """Padded tokens a batch."""
    learning_rate: float = 2e-4
    """Peak of AdamW's."""
    warmup: int = 100
    decay: float = 0.35
    """Share of the steps over which the rate falls to zero, at the end."""
    threads: int = 2
    seed: int = 1
    save_every: int = 100
    log_every: int = 20

    @property
    def steps(self) -> int:
        """Of both stages."""
        return sum(self.stages)


def rate_at(settings: ReaderSettings, step: int) -> float:
    """Return the learning rate of ``step``: warm-up, flat, linear to zero."""
    left = (settings.steps - step) / (settings.decay * settings.steps)
    return settings.learning_rate * min(1.0, (step + 1) / settings.warmup, left)


def compute_loss(heads: HeadLogits, batch: Batch) -> torch.Tensor:
    """Return the sum of the heads' losses, each in nats over the examples that have its target."""
    losses = [
        span_loss(heads.start, batch.starts, batch.readable),
        span_loss(heads.end, batch.ends, batch.readable),
    ]
    known = batch.relevant >= 0
    losses.append(2 * binary(heads.relevant[known], batch.relevant[known]))
    known = batch.retrieve >= 0
    losses.append(0.5 * binary(heads.retrieve[known], batch.retrieve[known]))
    return torch.stack(losses).sum()


def span_loss(logits: torch.Tensor, targets: torch.Tensor, readable: torch.Tensor) -> torch.Tensor:
    """Return minus the log-probability of all targets together, among readable tokens."""
    rows = targets.any(-1)
    if not rows.any():
        return logits.sum() * 0
    every = logits[rows].masked_fill(~readable[rows], -torch.inf).logsumexp(-1)
    right = logits[rows].masked_fill(~targets[rows], -torch.inf).logsumexp(-1)
    return (every - right).mean()


def binary(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of a probability, zero without targets."""
    if not len(targets):
        return logits.sum() * 0
    return binary_cross_entropy_with_logits(logits, targets)


class Trainer:
    """Network, optimiser and rows of one run, with its checkpoint in ``folder``."""

    def __init__(self, settings: ReaderSettings, folder: Path) -> None:
        torch.set_num_threads(settings.threads)
        torch.manual_seed(settings.seed)
        self.settings, self.folder, self.step = settings, folder, 0
        self.network = pretrained()
        words: Any = self.network.bert.embeddings["word_embeddings"]
        words.weight.requires_grad_(False)
        trained = [p for p in self.network.parameters() if p.requires_grad]
        matrices, rest = [p for p in trained if p.ndim > 1], [p for p in trained if p.ndim < 2]
        groups = [{"params": matrices, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)
        self._run = {k: v for k, v in asdict(settings).items() if k not in ("threads", "stages")}
        if (folder / "checkpoint.pt").exists():
            self._resume()

    def _resume(self) -> None:
        state = torch.load(self.folder / "checkpoint.pt", weights_only=True)
        if others := [name for name in self._run if state["run"].get(name) != self._run[name]]:
            raise SystemExit(f"{self.folder} holds a checkpoint of another {', '.join(others)}")
        self.step = state["step"]
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])

    def _save(self) -> None:
        """Write a checkpoint, whole or not at all."""
        state = {
            "run": self._run,
            "step": self.step,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, self.folder / "checkpoint.new")
        os.replace(self.folder / "checkpoint.new", self.folder / "checkpoint.pt")

    def run(self) -> Iterator[float]:
        """Train to the end, and yield each step's loss."""
        first, second = self.settings.stages
        if self.step < first:
            yield from self._stage(real_rows().train, NEGATIVES[0], 0, first)
        if self.step < first + second:
            yield from self._stage(all_rows(), NEGATIVES[1], first, first + second)

    def _stage(self, rows: Sequence[Row], per_row: float, begin: int, end: int) -> Iterator[float]:
        seed = self.settings.seed + begin
        stream = generate_examples(rows, Encoder(seed), seed, per_row)
        todo = batches(stream, self.settings.batch_tokens, random.Random(seed))
        # bfloat16 is faster only on CPUs that multiply matrices in it.
        is_faster = any(map(torch.cpu.get_capabilities().get, BFLOAT16))
        mixed = torch.autocast("cpu", torch.bfloat16, enabled=is_faster)
        # A resumed run skips the batches that it has read.
        for batch in islice(todo, self.step - begin, end - begin):
            for group in self.optimizer.param_groups:
                group["lr"] = rate_at(self.settings, self.step)
            # Backward through the fused kernel takes a third of a step at these lengths.
            with mixed, sdpa_kernel(SDPBackend.MATH):
                heads = self.network(batch.ids, batch.types, batch.mask)
            loss = compute_loss(heads, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1
            if self.step % self.settings.save_every == 0 or self.step == end:
                self._save()
            yield loss.item()


def main() -> None:
    """Train, with a line every few steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stages", type=int, nargs=2, default=ReaderSettings.stages)
    parser.add_argument("--threads", type=int, default=ReaderSettings.threads)
    args = parser.parse_args()
    settings = ReaderSettings(stages=tuple(args.stages), threads=args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    trainer, losses, began = Trainer(settings, args.out), list[float](), time.time()
    for loss in trainer.run():
        losses.append(loss)
        if trainer.step % settings.log_every == 0:
            print(
                f"step {trainer.step}/{settings.steps}  loss {sum(losses) / len(losses):.3f}  "
                f"{time.time() - began:.0f} s",
                flush=True,
            )
            losses.clear()


if __name__ == "__main__":
    main()
