"""Train the reader from MiniLM's weights: ``python -m reader_training.train --out FOLDER``.

Stage 1 reads the real sets, stage 2 the questions written for this training too, with more
passages that were retrieved and do not answer. A run that was cut resumes from its checkpoint.
"""

import argparse
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainingArguments

from reader_training.examples import Batch, Encoder, batches
from reader_training.mixture import all_rows, generate_examples
from reader_training.rows import real_rows
from reader_training.torch_network import HeadLogits, pretrained
from selfcorrect_rag.training.fine_tuning import newest_checkpoint

STAGES = (1000, 2900)
"""Optimiser steps of each stage."""
NEGATIVES = (0.5, 1.3)
"""Retrieved passages that do not answer for each row that is answered, in each stage."""
BATCH_TOKENS = 4096
"""Padded tokens a batch."""
DECAY = 0.35
"""Share of the steps over which the rate falls to zero, at the end."""
SEED = 1
BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
"""CPU capabilities, as torch names them, of which any multiplies matrices in bfloat16."""


def compute_loss(heads: HeadLogits, batch: Batch) -> torch.Tensor:
    """Return the sum of the heads' losses, each in nats over the examples that have its target."""
    losses = [
        span_loss(heads.start, batch["starts"], batch["readable"]),
        span_loss(heads.end, batch["ends"], batch["readable"]),
    ]
    for weight, logits, targets in (
        (2.0, heads.relevant, batch["relevant"]),
        (0.5, heads.retrieve, batch["retrieve"]),
    ):
        if (known := targets >= 0).any():
            loss = binary_cross_entropy_with_logits(logits[known], targets[known])
            losses.append(weight * loss)
    return torch.stack(losses).sum()


def span_loss(logits: torch.Tensor, targets: torch.Tensor, readable: torch.Tensor) -> torch.Tensor:
    """Return minus the log-probability of all targets together, among readable tokens."""
    rows = targets.any(-1)
    if not rows.any():
        return logits.sum() * 0
    every = logits[rows].masked_fill(~readable[rows], -torch.inf).logsumexp(-1)
    right = logits[rows].masked_fill(~targets[rows], -torch.inf).logsumexp(-1)
    return (every - right).mean()


class Batches(IterableDataset[Batch]):
    """The batches of both stages, without those of the first ``done`` steps."""

    def __init__(self, stages: tuple[int, int], done: int) -> None:
        self.stages, self.done = stages, done

    def __iter__(self) -> Iterator[Batch]:
        begin = 0
        for steps, per_row in zip(self.stages, NEGATIVES, strict=True):
            if self.done < begin + steps:
                seed, rows = SEED + begin, all_rows() if begin else real_rows().train
                examples = generate_examples(rows, Encoder(seed), seed, per_row)
                every = batches(examples, BATCH_TOKENS, random.Random(seed))
                yield from islice(every, max(0, self.done - begin), steps)
            begin += steps


class ReaderTrainer(Trainer):
    """transformers' Trainer with the losses of the reader's heads."""

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        """Return the loss of a batch."""
        # Backward through the fused kernel takes a third of a step at these lengths.
        with sdpa_kernel(SDPBackend.MATH):
            heads = model(inputs["ids"], inputs["types"], inputs["mask"])
        return compute_loss(heads, inputs)


def train(folder: Path, stages: tuple[int, int] = STAGES, **arguments: Any) -> None:
    """Train into checkpoints in ``folder``; ``arguments`` are TrainingArguments."""
    checkpoint = newest_checkpoint(folder)
    steps, warmup = sum(stages), min(100, sum(stages) // 4)
    decay = round(DECAY * steps)
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": steps,
        "per_device_train_batch_size": 1,
        "learning_rate": 2e-4,
        "weight_decay": 0.01,
        "warmup_steps": warmup,
        "lr_scheduler_type": "warmup_stable_decay",
        "lr_scheduler_kwargs": {"num_decay_steps": decay, "decay_type": "linear"},
        # bfloat16 is faster only on CPUs that multiply matrices in it.
        "bf16": any(map(torch.cpu.get_capabilities().get, BFLOAT16)),
        "use_cpu": True,
        "seed": SEED,
        "save_steps": 100,
        "save_total_limit": 2,
        "logging_steps": 20,
        "remove_unused_columns": False,
        "ignore_data_skip": True,  # the batches begin where the checkpoint ends
        "dataloader_pin_memory": False,
        "report_to": [],
    }
    torch.manual_seed(SEED)
    done = int(checkpoint.rpartition("-")[2]) if checkpoint else 0
    trainer = ReaderTrainer(
        pretrained(),
        TrainingArguments(**{**given, **arguments}),
        data_collator=lambda batches: batches[0],
        train_dataset=Batches(stages, done),
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(str(folder / "trained"))


def main() -> None:
    """Train, with a line every few steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stages", type=int, nargs=2, default=STAGES)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    train(args.out, tuple(args.stages))


if __name__ == "__main__":
    main()
