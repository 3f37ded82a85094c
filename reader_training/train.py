"""Train a reader: ``python -m reader_training.train --out FOLDER [--size base]``.

The small one starts from the shipped reader, or from MiniLM with ``--from-encoder``; the base one
from MPNet. ``--teacher`` names one that was trained before, and reads every batch too. It saves
every ten minutes, and the same command resumes.
"""

import argparse
import multiprocessing
import random
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import IterableDataset, get_worker_info
from transformers import Trainer, TrainerCallback, TrainingArguments

from reader_training.examples import Batch, Encoder, Example, batches
from reader_training.mixture import all_rows, draw_rows
from reader_training.rows import Row
from reader_training.torch_network import (
    BASES,
    HeadLogits,
    ReaderNetwork,
    Size,
    load_trained,
    pretrained,
)
from selfcorrect_rag.reader.network import SHIPPED
from selfcorrect_rag.training.fine_tuning import newest_checkpoint

SEED = 1
STEPS, TAUGHT_STEPS = {"small": 2800, "base": 1300}, 1700
"""Optimiser steps, and those with a teacher. On two cores with bfloat16 one takes 1.2 s for the
small one, 3 s for the base one (with AVX2 15 s), and 5 s with the base one as teacher."""
RATES = {"small": 1e-4, "base": 5e-5}
BATCH_TOKENS = {"small": 4096, "base": 2048}
"""Padded tokens a batch."""
SAVE_SECONDS = 600
"""Seconds between checkpoints."""
DECAY = 0.35
"""Share of the steps over which the rate falls to zero, at the end."""
SOFT = 1.0
"""Weight of the teacher's judgements in the loss."""
BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
"""CPU capabilities, as torch names them, of which any multiplies matrices in bfloat16."""


def compute_loss(heads: HeadLogits, batch: Batch) -> torch.Tensor:
    """Return the sum of the heads' losses, each in nats over the examples that have its target."""
    losses = [span_loss(heads, batch)]
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


def teacher_loss(heads: HeadLogits, taught: HeadLogits, batch: Batch) -> torch.Tensor:
    """Return the cross-entropies with the teacher's probabilities; its spans count as much as it
    thinks that the passage answers."""
    read = batch["readable"].any(1) & batch["teacher_readable"].any(1)
    if not read.any():
        return heads.start.sum() * 0
    relevant = taught.relevant[read].sigmoid()
    loss = 2 * binary_cross_entropy_with_logits(heads.relevant[read], relevant)
    for own, other in ((heads.start, taught.start), (heads.end, taught.end)):
        logprobs = _of_passage(own, batch["readable"])[read].log_softmax(-1)
        probabilities = _of_passage(other, batch["teacher_readable"])[read].softmax(-1)
        # The k-th word piece is the same for both, but one may have cut a long passage sooner.
        width = min(logprobs.shape[1], probabilities.shape[1])
        crossed = -(probabilities[:, :width] * logprobs[:, :width]).sum(-1)
        loss = loss + (relevant * crossed).mean()
    return SOFT * loss


def _of_passage(logits: torch.Tensor, readable: torch.Tensor) -> torch.Tensor:
    """Return logits (B, T) with those of the passage's tokens in front, and behind them none."""
    first = readable.int().argsort(dim=1, descending=True, stable=True)
    return logits.masked_fill(~readable, -1e4).gather(1, first)


class Batches(IterableDataset[Batch]):
    """The batches of a run, without those of the first ``done`` steps, as each of ``sizes`` reads
    them; each process that loads data draws other ones."""

    def __init__(self, rows: Sequence[Row], sizes: Sequence[Size], tokens: int, done: int) -> None:
        self.rows, self.sizes, self.tokens, self.done = rows, sizes, tokens, done

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        number, count = (worker.id, worker.num_workers) if worker else (0, 1)
        every = batches(self._read(SEED + number), self.tokens, random.Random(SEED + number))
        return islice(every, len(range(number, self.done, count)), None)

    def _read(self, seed: int) -> Iterator[list[Example]]:
        encoders = [Encoder(BASES[size]) for size in self.sizes]
        for drawn in draw_rows(self.rows, seed):
            read = [encoder.encode(*drawn) for encoder in encoders]
            if read[0].spans or not drawn.row.answers:  # else the answer was cut off
                yield read


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
    teacher: ReaderNetwork | None = None

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        """Return the loss of a batch."""
        self.begun = self.begun or time.monotonic()
        self.tokens += int(inputs["mask"].sum())
        # Backward through the fused kernel takes a third of a step at these lengths.
        with sdpa_kernel(SDPBackend.MATH):
            heads = model(inputs["ids"], inputs["types"], inputs["mask"])
        loss = compute_loss(heads, inputs)
        if self.teacher:
            with torch.no_grad():
                taught = self.teacher(*(inputs[f"teacher_{n}"] for n in ("ids", "types", "mask")))
            loss = loss + teacher_loss(heads, taught, inputs)
        return loss

    def log(self, logs: dict[str, float], *args: Any, **given: Any) -> None:
        """Log the tokens a second since the first step too."""
        speed = self.tokens / max(1e-9, time.monotonic() - self.begun)
        super().log({**logs, "tokens_a_second": round(speed)}, *args, **given)


def train(
    folder: Path,
    size: Size = "small",
    steps: int | None = None,
    teacher: Path | None = None,
    start: Path | None = SHIPPED,
    tokens: int | None = None,
    **arguments: Any,
) -> None:
    """Train into checkpoints in ``folder``; ``arguments`` are TrainingArguments."""
    checkpoint = newest_checkpoint(folder)
    steps = steps or (TAUGHT_STEPS if teacher else STEPS[size])
    cuda = torch.cuda.is_available()
    taught = load_trained(teacher).to("cuda" if cuda else "cpu") if teacher else None
    sizes = [size, taught.size] if taught else [size]
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
        data_collator=itemgetter(0),  # a lambda could not be sent to the workers
        train_dataset=Batches(all_rows(), sizes, tokens or BATCH_TOKENS[size], done),
        callbacks=[SaveByTime()],
    )
    trainer.teacher = taught
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model(str(folder / "trained"))


def main() -> None:
    """Train, with a line every few steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=["small", "base"], default="small")
    parser.add_argument("--teacher", type=Path, help="Folder of its training.")
    parser.add_argument("--from-encoder", action="store_true", help="Start from MiniLM.")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--tokens", type=int, help="Padded tokens a step.")
    parser.add_argument("--rate", type=float, help="Learning rate.")
    parser.add_argument("--workers", type=int, default=0, help="Processes that load data.")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    # A fork hangs where JAX is installed, since bm25s then computes with it.
    multiprocessing.set_start_method("spawn")
    start = None if args.from_encoder else SHIPPED
    given = {"learning_rate": args.rate or RATES[args.size], "dataloader_num_workers": args.workers}
    train(args.out, args.size, args.steps, args.teacher, start, args.tokens, **given)


if __name__ == "__main__":
    main()
