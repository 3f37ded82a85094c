"""Train a reader: ``python -m reader_training.train --out FOLDER [--size base] [--labels FOLDER]``.

The small one starts from the shipped reader, or from MiniLM with ``--from-encoder``; the base one
from MPNet. With labels of a teacher it learns from them too. It saves every ten minutes, and the
same command resumes.
"""

import argparse
import random
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from reader_training.examples import Batch, Encoder, Example, batches
from reader_training.label import SEED, labelled_rows
from reader_training.torch_network import BASES, HeadLogits, Size, pretrained
from selfcorrect_rag.reader.network import SHIPPED
from selfcorrect_rag.training.fine_tuning import newest_checkpoint

STEPS = {"small": 2000, "base": 450}
"""Optimiser steps; one of the base one takes 15 s on two cores (AVX2 at 2 GHz)."""
RATES = {"small": 1e-4, "base": 5e-5}
BATCH_TOKENS = {"small": 4096, "base": 2048}
"""Padded tokens a batch."""
SAVE_SECONDS = 600
"""Seconds between checkpoints."""
DECAY = 0.35
"""Share of the steps over which the rate falls to zero, at the end."""
SOFT = 0.5
"""Share of the teacher's labels in the loss."""
BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
"""CPU capabilities, as torch names them, of which any multiplies matrices in bfloat16."""


def compute_loss(heads: HeadLogits, batch: Batch) -> torch.Tensor:
    """Return the sum of the heads' losses, each in nats over the examples that have its target."""
    labelled = batch["soft_relevant"] >= 0
    losses = [span_loss(heads, batch), *soft_losses(heads, batch, labelled)]
    for weight, name in ((2.0, "relevant"), (0.5, "retrieve")):
        logits, targets = getattr(heads, name), batch[name]
        if (known := targets >= 0).any():
            loss = binary_cross_entropy_with_logits(logits[known], targets[known])
            losses.append(weight * loss)
    return torch.stack(losses).sum()


def span_loss(heads: HeadLogits, batch: Batch) -> torch.Tensor:
    """Return minus the log-probability that the span is any of the answer's mentions."""
    rows = batch["spans"][:, 0, 0] >= 0
    if not rows.any():
        return heads.start.sum() * 0
    spans, unread = batch["spans"][rows], ~batch["readable"][rows]
    joint = torch.zeros(spans.shape[:2], device=spans.device)
    for edge, logits in enumerate((heads.start, heads.end)):
        logprobs = logits[rows].masked_fill(unread, -1e4).log_softmax(-1)
        joint = joint + logprobs.gather(1, spans[..., edge].clamp(min=0))
    return -joint.masked_fill(spans[..., 0] < 0, -1e4).logsumexp(-1).mean()


def soft_losses(heads: HeadLogits, batch: Batch, labelled: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the cross-entropies with the teacher's probabilities; its spans count as much as it
    thinks that the passage answers."""
    if not labelled.any():
        return
    relevant, unread = batch["soft_relevant"][labelled], ~batch["readable"][labelled]
    yield SOFT * 2 * binary_cross_entropy_with_logits(heads.relevant[labelled], relevant)
    for logits, name in ((heads.start, "soft_start"), (heads.end, "soft_end")):
        logprobs = logits[labelled].masked_fill(unread, -1e4).log_softmax(-1)
        crossed = -(batch[name][labelled] * logprobs).sum(-1)
        yield SOFT * (relevant * crossed).mean()


class Batches(IterableDataset[Batch]):
    """The batches of a run, without those of the first ``done`` steps."""

    def __init__(self, size: Size, labels: Path | None, done: int) -> None:
        self.size, self.labels, self.done = size, labels, done

    def __iter__(self) -> Iterator[Batch]:
        encoder = Encoder(BASES[self.size])
        every = batches(self._examples(encoder), BATCH_TOKENS[self.size], random.Random(SEED))
        return islice(every, self.done, None)

    def _examples(self, encoder: Encoder) -> Iterator[Example]:
        for drawn, labels in labelled_rows(self.labels):
            example = encoder.encode(*drawn)
            if example.spans or not drawn.row.answers:  # else the answer was cut off
                example.soft = labels
                yield example


class SaveByTime(TrainerCallback):
    """Saves a checkpoint when the last one is `SAVE_SECONDS` old."""

    def __init__(self) -> None:
        self.saved = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **ignored: Any) -> None:
        """Ask for a checkpoint."""
        if time.monotonic() - self.saved > SAVE_SECONDS:
            control.should_save, self.saved = True, time.monotonic()


class ReaderTrainer(Trainer):
    """transformers' Trainer with the losses of the reader's heads; logs its speed."""

    tokens, begun = 0, 0.0

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        """Return the loss of a batch."""
        self.begun = self.begun or time.monotonic()
        self.tokens += int(inputs["mask"].sum())
        # Backward through the fused kernel takes a third of a step at these lengths.
        with sdpa_kernel(SDPBackend.MATH):
            heads = model(inputs["ids"], inputs["types"], inputs["mask"])
        return compute_loss(heads, inputs)

    def log(self, logs: dict[str, float], *args: Any, **given: Any) -> None:
        """Log the tokens a second since the first step too."""
        speed = self.tokens / max(1e-9, time.monotonic() - self.begun)
        super().log({**logs, "tokens_a_second": round(speed)}, *args, **given)


def train(
    folder: Path,
    size: Size = "small",
    steps: int | None = None,
    labels: Path | None = None,
    start: Path | None = SHIPPED,
    **arguments: Any,
) -> None:
    """Train into checkpoints in ``folder``; ``arguments`` are TrainingArguments."""
    checkpoint, steps = newest_checkpoint(folder), steps or STEPS[size]
    cuda = torch.cuda.is_available()
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "max_steps": steps,
        "per_device_train_batch_size": 1,
        "learning_rate": RATES[size],
        "weight_decay": 0.01,
        "warmup_steps": min(100, steps // 4),
        "lr_scheduler_type": "warmup_stable_decay",
        "lr_scheduler_kwargs": {"num_decay_steps": round(DECAY * steps), "decay_type": "linear"},
        # bfloat16 is faster only on CPUs that multiply matrices in it.
        "bf16": cuda or any(map(torch.cpu.get_capabilities().get, BFLOAT16)),
        "use_cpu": not cuda,
        "seed": SEED,
        "save_strategy": "no",  # by time instead
        "save_total_limit": 2,
        "logging_steps": 10,
        "remove_unused_columns": False,
        "ignore_data_skip": True,  # the batches begin where the checkpoint ends
        "dataloader_pin_memory": cuda,
        "report_to": [],
    }
    torch.manual_seed(SEED)
    done = int(checkpoint.rpartition("-")[2]) if checkpoint else 0
    trainer = ReaderTrainer(
        pretrained(size, start if size == "small" else None),
        TrainingArguments(**{**given, **arguments}),
        data_collator=lambda batches: batches[0],
        train_dataset=Batches(size, labels, done),
        callbacks=[SaveByTime()],
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(str(folder / "trained"))


def main() -> None:
    """Train, with a line every few steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=["small", "base"], default="small")
    parser.add_argument("--labels", type=Path, help="Folder that reader_training.label wrote.")
    parser.add_argument("--from-encoder", action="store_true", help="Start from MiniLM.")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    start = None if args.from_encoder else SHIPPED
    train(args.out, args.size, args.steps, args.labels, start)


if __name__ == "__main__":
    main()
