"""Pretrains a tiny T5 to read, which fine-tuning makes the nano evaluator.

From random weights a score for each pair is too little to learn matching names from. So the encoder
is asked, beside the score, which tokens of the passage answer the question; that reading is dropped
afterwards. Four heads begin by looking for the same token elsewhere, three at a neighbour.
"""

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers.processors import TemplateProcessing
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss
from transformers import PreTrainedTokenizerFast, T5Config, T5ForSequenceClassification

from nano_training.batches import packed
from nano_training.evaluator_data import read
from nano_training.optimizer import Muon, mixed, precision
from nano_training.questions import WorldQuestion, new_question
from nano_training.tokenizer import EOS, load_tokenizer
from nano_training.trainer import refuse_another
from nano_training.world import World
from selfcorrect_rag.models.evaluators.pairs import SEPARATOR

CHUNK = 32
"""Batches made at a time, so that pairs of like length share a batch."""
SAME_TOKEN, NEIGHBOURS = 4, {4: 1, 5: 17, 6: 2}
"""Heads that look for their own token; head -> bucket of T5's relative position (-1, +1, -2)."""


@dataclass(frozen=True)
class PretrainingSettings:
    """Hyperparameters of the pretraining."""

    steps: int = 1600
    seed: int = 1
    threads: int = 1
    batch_tokens: int = 4096
    """Padded tokens a batch."""
    hidden_size: int = 256
    layers: int = 4
    """Layers of the encoder; the decoder has one."""
    intermediate_size: int = 640
    learning_rate: float = 2e-3
    """Peak learning rate: warm-up of 60 steps, flat for a third, cosine to 3 %."""
    easy_share: float = 0.25
    """Share of the steps with short passages."""
    save_every: int = 200


def evaluator_tokenizer(generator: Path) -> PreTrainedTokenizerFast:
    """The nano generator's tokenizer as T5 wants it: an end token after each text."""
    tokenizer = load_tokenizer(generator).backend_tokenizer
    tokenizer.post_processor = TemplateProcessing(
        single=f"$A {EOS}", special_tokens=[(EOS, tokenizer.token_to_id(EOS))]
    )
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )


def build(vocabulary: int, settings: PretrainingSettings) -> T5ForSequenceClassification:
    """A fresh network with one label."""
    config = T5Config(
        vocab_size=vocabulary,
        d_model=settings.hidden_size,
        d_kv=32,
        d_ff=settings.intermediate_size,
        num_layers=settings.layers,
        num_decoder_layers=1,
        num_heads=settings.hidden_size // 32,
        feed_forward_proj="gated-gelu",
        dropout_rate=0.0,
        classifier_dropout=0.0,
        pad_token_id=0,
        eos_token_id=2,
    )
    config.decoder_start_token_id, config.num_labels = 0, 1
    config.problem_type = "regression"
    model = T5ForSequenceClassification(config)
    encoder: Any = model.transformer.encoder
    attention = encoder.block[0].layer[0].SelfAttention
    with torch.no_grad():
        bias = attention.relative_attention_bias.weight.zero_()
        bias[0, :SAME_TOKEN] = -10.0  # elsewhere
        for head, bucket in NEIGHBOURS.items():
            bias[bucket, head] = 6.0
        for head in range(SAME_TOKEN):
            rows = slice(32 * head, 32 * (head + 1))
            basis = torch.linalg.qr(torch.randn(settings.hidden_size, 32)).Q.T
            # The norm before it gives every token a length of sqrt(width).
            attention.q.weight[rows] = attention.k.weight[rows] = 0.55 * basis
    return model


@dataclass(frozen=True)
class PairExample:
    """A pair in tokens."""

    ids: list[int]
    answers: list[float]
    """1 where a token of the passage is part of the answer, 0 where not, -1 in the question."""
    label: float

    def __len__(self) -> int:
        return len(self.ids)


class PairBatch(NamedTuple):
    """Pairs padded on the right: (pairs, tokens), and labels (pairs,)."""

    ids: torch.Tensor
    answers: torch.Tensor
    labels: torch.Tensor


@dataclass(frozen=True)
class PairStream:
    """An endless deterministic stream of batches."""

    tokenizer: PreTrainedTokenizerFast
    settings: PretrainingSettings

    def __hash__(self) -> int:
        return hash(self.settings)

    def batch(self, step: int) -> PairBatch:
        """The batch of ``step``, counted from 0."""
        return _collate(self._chunk(step // CHUNK)[step % CHUNK])

    @lru_cache(maxsize=1)  # noqa: B019  (one stream, and one chunk of it at a time)
    def _chunk(self, number: int) -> list[list[PairExample]]:
        settings = self.settings
        world = World(f"evaluator/{settings.seed}/{number}")
        easy = number * CHUNK < settings.easy_share * settings.steps
        examples: list[PairExample] = []
        while sum(map(len, examples)) < 1.1 * CHUNK * settings.batch_tokens:
            lengths = [2 if easy else world.choice((2, 4, 6)) for _ in range(64)]
            cases = [new_question(world, most) for most in lengths]
            examples += self._examples(world, cases)
        return packed(examples, settings.batch_tokens, world.random)[:CHUNK]

    def _examples(self, world: World, cases: Sequence[WorldQuestion]) -> Iterator[PairExample]:
        pairs: list[tuple[str, str, str]] = []
        for case in cases:
            pairs.append((case.question, read(case.gold), case.target))
            wrong = (case.missing, case.other, case.similar, case.stranger)
            made = world.random.choices(wrong, (5, 3, 3, 1), k=2)
            pairs += [(case.question, read(each()), "") for each in made]
        texts = [f"{question}{SEPARATOR}{passage}" for question, passage, _ in pairs]
        encoded: Any = self.tokenizer(
            texts, return_offsets_mapping=True, truncation=True, max_length=256
        )
        for (question, _, answer), text, ids, offsets in zip(
            pairs, texts, encoded["input_ids"], encoded["offset_mapping"], strict=True
        ):
            begin = len(question) + len(SEPARATOR)
            yield PairExample(ids, _answers(text, begin, answer, offsets), 1.0 if answer else -1.0)


def _answers(text: str, begin: int, answer: str, offsets: Sequence[tuple[int, int]]) -> list[float]:
    pattern = rf"(?<!\w){re.escape(answer)}(?!\w)"
    spans = [m.span() for m in re.finditer(pattern, text) if m.start() >= begin] if answer else []
    return [
        -1.0
        if start < begin or start == stop
        else float(any(start < last and first < stop for first, last in spans))
        for start, stop in offsets
    ]


def _collate(examples: Sequence[PairExample]) -> PairBatch:
    length = max(map(len, examples))
    ids = torch.zeros(len(examples), length, dtype=torch.long)
    answers = torch.full((len(examples), length), -1.0)
    for row, example in enumerate(examples):
        ids[row, : len(example)] = torch.tensor(example.ids)
        answers[row, : len(example)] = torch.tensor(example.answers)
    return PairBatch(ids, answers, torch.tensor([e.label for e in examples]))


class Pretraining:
    """One run, with checkpoints in ``folder``; it goes on from the newest."""

    def __init__(self, settings: PretrainingSettings, folder: Path, generator: Path) -> None:
        torch.set_num_threads(settings.threads)
        torch.manual_seed(settings.seed)
        self.settings, self.file, self.step = settings, folder / "pretraining.pt", 0
        self._run = {**asdict(settings), "precision": precision()}
        self.tokenizer = evaluator_tokenizer(generator)
        self.model = build(len(self.tokenizer), settings)
        self.finder = torch.nn.Linear(settings.hidden_size, 1)
        linear = {n: m for n, m in self.model.named_modules() if isinstance(m, torch.nn.Linear)}
        matrices = {n: m.weight for n, m in linear.items() if min(m.weight.shape) > 1}
        # T5 does not scale its attention scores: what others divide by is put into the rate.
        queries = [weight for name, weight in matrices.items() if name.endswith(".q")]
        others = [weight for name, weight in matrices.items() if not name.endswith(".q")]
        chosen = {id(weight) for weight in matrices.values()}
        rest = [p for p in self.model.parameters() if id(p) not in chosen]
        self.optimisers: list[torch.optim.Optimizer] = [
            Muon([{"params": others, "share": 1.0}, {"params": queries, "share": 32**-0.5}]),
            torch.optim.AdamW([*rest, *self.finder.parameters()], betas=(0.9, 0.98)),
        ]
        self.stream = PairStream(self.tokenizer, settings)
        folder.mkdir(parents=True, exist_ok=True)
        if self.file.exists():
            self._resume()

    def run(self) -> Iterator[tuple[int, float, float]]:
        """Train, yielding (steps done, squared error of the scores, loss of the hints)."""
        while self.step < self.settings.steps:
            batch = self.stream.batch(self.step)
            for optimiser in self.optimisers:
                for group in optimiser.param_groups:
                    group["lr"] = self._rate() * group.get("share", 1.0)
            error, hints = self.losses(batch)
            (error + hints).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            for optimiser in self.optimisers:
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            self.step += 1
            if self.step % self.settings.save_every == 0 or self.step == self.settings.steps:
                self._save()
            yield self.step, error.item(), hints.item()

    def losses(self, batch: PairBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Squared error of the scores; cross-entropy of the answer's tokens, of which those that
        are and those that are not count half each."""
        mask = (batch.ids > 0).long()
        with mixed():
            output = self.model(input_ids=batch.ids, attention_mask=mask, use_cache=False)
            in_passage = batch.answers >= 0
            found = self.finder(output.encoder_last_hidden_state[in_passage])[:, 0]
        answers = batch.answers[in_passage]
        share = answers.mean().clamp(1e-3, 1 - 1e-3)
        balance = torch.where(answers > 0, 0.5 / share, 0.5 / (1 - share))
        hints = binary_cross_entropy_with_logits(found.float(), answers, balance)
        return mse_loss(output.logits[:, 0].float(), batch.labels), hints

    def _rate(self) -> float:
        progress = self.step / self.settings.steps
        if progress < 1 / 3:
            return self.settings.learning_rate * min(1.0, (self.step + 1) / 60)
        cosine = 0.5 * (1 + math.cos(math.pi * (progress - 1 / 3) * 1.5))
        return self.settings.learning_rate * (0.03 + 0.97 * cosine)

    def _parts(self) -> dict[str, Any]:
        named = {"model": self.model, "finder": self.finder}
        return {**named, **{f"optimiser {i}": o for i, o in enumerate(self.optimisers)}}

    def _save(self) -> None:
        state = {name: part.state_dict() for name, part in self._parts().items()}
        fresh = self.file.with_suffix(".new")
        torch.save({"run": self._run, "step": self.step, **state}, fresh)
        os.replace(fresh, self.file)

    def _resume(self) -> None:
        state = torch.load(self.file, weights_only=True)
        refuse_another(self.file, state["run"], self._run)
        self.step = state["step"]
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
