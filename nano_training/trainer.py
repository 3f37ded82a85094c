"""The trainer of the nano models: settings, losses, and checkpoints from which a run resumes.

A run ends in the same weights, however often it was cut: the rows of a step follow from the seed
and the step alone.
"""

import dataclasses
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from nano_training.architecture import BY_BRANCH, build
from nano_training.batches import Batch
from nano_training.optimizer import Muon, mixed, precision
from nano_training.rows import EARLY, MAIN
from nano_training.tokenizer import load_tokenizer, train_tokenizer
from selfcorrect_rag.old_journal import digest_of_weights


@dataclass(frozen=True)
class TrainingSettings:
    """Hyperparameters; two runs with the same ones end in the same weights."""

    steps: int = 4400
    """Optimiser steps."""
    hint_weight: float = 0.3
    """Weight of the auxiliary loss (see `HintHead`) beside that of the text."""
    easy_share: float = 0.2
    """Share of the steps with short passages and some loss on their text, which teach copying."""
    seed: int = 1
    threads: int = 2
    """CPU threads: part of the result, since sums are split by it."""
    batch_tokens: int = 4096
    """Padded tokens a batch."""
    vocabulary: int = 4096
    tokenizer_rows: int = 16000
    hidden_size: int = 256
    layers: int = 4
    heads: int = 8
    intermediate_size: int = 704
    learning_rate: float = 3e-3
    """Peak learning rate of both optimisers (Muon, with updates scaled as AdamW's)."""
    warmup: int = 60
    decay_start: float = 0.3
    """Share of the steps before the cosine decay, to 3 % of the peak."""
    save_every: int = 200
    log_every: int = 20


class Batches(Protocol):
    """The data of a run."""

    def batch(self, step: int) -> Batch:
        """The batch of ``step``, counted from 0."""


def rate_at(settings: TrainingSettings, step: int) -> float:
    """The learning rate of `step`: warm-up, flat, cosine."""
    progress = step / settings.steps
    if progress < settings.decay_start:
        return settings.learning_rate * min(1.0, (step + 1) / settings.warmup)
    fallen = (progress - settings.decay_start) / (1 - settings.decay_start)
    return settings.learning_rate * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * fallen)))


def optimisers(
    model: LlamaForCausalLM, hint_head: torch.nn.Module, rate: float
) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for all else."""
    named = list(model.named_parameters())
    matrices = [p for n, p in named if p.ndim == 2 and "embed" not in n]
    rest = [p for n, p in named if p.ndim != 2 or "embed" in n] + list(hint_head.parameters())
    return [
        Muon(matrices, lr=rate),
        torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


class HintHead(Protocol):
    """An auxiliary head on the hidden states, which is dropped after training."""

    def __call__(self, states: Sequence[torch.Tensor], hints: torch.Tensor) -> torch.Tensor:
        """A loss in nats, from the states (rows, tokens, width) after each layer, embeddings
        first, and from the batch's hints (rows, tokens), where at least one is given."""


class AnswerTagger(torch.nn.Module):
    """Classifies which tokens of the passage answer the question, before the last layer.

    A thousand small hints a batch where ISREL gives one a row. Tokens that do and tokens that do
    not count half each.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.answers = torch.nn.Linear(width, 1)

    def forward(self, states: Sequence[torch.Tensor], hints: torch.Tensor) -> torch.Tensor:
        read = hints >= 0
        found, answers = self.answers(states[-2][read])[:, 0], hints[read]
        share = answers.mean().clamp(1e-3, 1 - 1e-3)
        balance = torch.where(answers > 0, 0.5 / share, 0.5 / (1 - share))
        return torch.nn.functional.binary_cross_entropy_with_logits(found.float(), answers, balance)


def losses_of(
    model: LlamaForCausalLM, hint_head: HintHead, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss of the text, and the auxiliary loss.

    The first is the weighted cross-entropy in nats a token, computed only where a token counts.
    """
    targets, weights = batch.ids[:, 1:], batch.weights[:, 1:]
    chosen = weights > 0
    with mixed():
        output = model.model(
            input_ids=batch.ids,
            branch=batch.branch,
            position_ids=batch.positions,
            use_cache=False,
            output_hidden_states=True,
        )
        logits = model.lm_head(output.last_hidden_state[:, :-1][chosen])
        has_hints = (batch.hints >= 0).any()
        hints = hint_head(output.hidden_states, batch.hints) if has_hints else None
    losses = torch.nn.functional.cross_entropy(logits.float(), targets[chosen], reduction="none")
    written = (losses * weights[chosen]).sum() / weights[chosen].sum()
    return written, written * 0 if hints is None else hints


class Trainer:
    """Model, optimisers and data of one run, with checkpoints in `folder`."""

    def __init__(
        self,
        settings: TrainingSettings,
        folder: Path,
        *,
        data: Callable[[TrainingSettings, PreTrainedTokenizerFast], Batches],
        start: Path | None = None,
        hint_head: Callable[[int], Any] = AnswerTagger,
    ) -> None:
        """From random weights, or from the checkpoint at ``start`` with its tokenizer."""
        torch.set_num_threads(settings.threads)
        torch.manual_seed(settings.seed)
        self.settings, self.folder, self.step = settings, folder, 0
        if start is None and not (folder / "tokenizer.json").exists():
            train_tokenizer(
                settings.vocabulary, settings.tokenizer_rows, settings.seed, (EARLY, MAIN)
            ).save_pretrained(folder)
        self.tokenizer = load_tokenizer(start or folder)
        self.model: LlamaForCausalLM = (
            LlamaForCausalLM.from_pretrained(start, dtype=torch.float32)
            if start
            else build(
                len(self.tokenizer),
                settings.hidden_size,
                settings.layers,
                settings.heads,
                settings.intermediate_size,
            )
        )
        self.model.set_attn_implementation(BY_BRANCH)
        self.hint_head = hint_head(settings.hidden_size)
        self.optimisers = optimisers(self.model, self.hint_head, settings.learning_rate)
        self.data = data(settings, self.tokenizer)
        self._run = {
            **dataclasses.asdict(settings),
            "precision": precision(),
            "start": digest_of_weights(start) if start else "",
            "data": hashlib.sha256(self.data.batch(0).ids.numpy().tobytes()).hexdigest(),
        }
        if (folder / "checkpoint.pt").exists():
            self.resume()

    def resume(self) -> None:
        """Resume from the newest checkpoint, which must have the same settings, start and data; the
        first batch identifies the data."""
        state = torch.load(self.folder / "checkpoint.pt", weights_only=True)
        refuse_another(self.folder, state["run"], self._run)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.hint_head.load_state_dict(state["hint_head"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)

    def save(self) -> None:
        """Write a checkpoint, whole or not at all."""
        state = {
            "run": self._run,
            "step": self.step,
            "model": self.model.state_dict(),
            "hint_head": self.hint_head.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
        }
        torch.save(state, self.folder / "checkpoint.new")
        os.replace(self.folder / "checkpoint.new", self.folder / "checkpoint.pt")

    def run(self, until: int | None = None) -> Iterator[tuple[int, int, float]]:
        """Train, yielding (steps done, tokens of the batch, loss) after every step."""
        last = self.settings.steps if until is None else until
        while self.step < last:
            batch = self.data.batch(self.step)
            for optimiser in self.optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = rate_at(self.settings, self.step)
            loss, hints = losses_of(self.model, self.hint_head, batch)
            (loss + self.settings.hint_weight * hints).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            for optimiser in self.optimisers:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            self.step += 1
            if self.step % self.settings.save_every == 0 or self.step == last:
                self.save()
            yield self.step, int((batch.ids > 0).sum()), loss.item()


def refuse_another(place: Path, saved: Mapping[str, Any], run: Mapping[str, Any]) -> None:
    """End the program where the checkpoint at ``place`` is of another run, with what differs."""
    if others := [name for name in run if saved.get(name) != run[name]]:
        raise SystemExit(f"{place} holds a checkpoint of another {', '.join(others)}")


def export(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    mantissa: int | None = None,
) -> None:
    """Write a model in half precision, and its tokenizer.

    ``mantissa``: bits (of 10) that are kept in matrices. The rest is 0, which a wheel compresses.
    """
    model.half()  # type: ignore[no-untyped-call]
    if mantissa is not None:
        with torch.no_grad():
            for weights in model.parameters():
                if weights.ndim == 2:
                    weights.copy_(rounded(weights, mantissa))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def rounded(values: torch.Tensor, mantissa: int) -> torch.Tensor:
    """The nearest numbers with so many bits of mantissa after the leading one."""
    fraction, exponent = torch.frexp(values.float())
    steps = 2.0 ** (mantissa + 1)
    return torch.ldexp(torch.round(fraction * steps) / steps, exponent).to(values.dtype)


def train_and_log(trainer: Trainer, name: str = "") -> None:
    """Train to the end, and print a line every ``log_every`` steps."""
    settings, began, start = trainer.settings, time.time(), trainer.step
    tokens, losses = 0, list[float]()
    for step, count, loss in trainer.run():
        tokens += count
        losses.append(loss)
        if step % settings.log_every == 0 or step == settings.steps:
            seconds = time.time() - began
            print(
                f"{name}step {step}/{settings.steps}  loss {sum(losses) / len(losses):.4f}  "
                f"{tokens / 1e6:.2f} M tokens since step {start}  {tokens / seconds:.0f} tokens/s  "
                f"{seconds:.0f} s",
                flush=True,
            )
            losses.clear()
