"""Fine-tunes causal language models: rows of ids, batches, and rows held out for the report."""

import hashlib
from array import array
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, TypeVar

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.models.checkpoints import load_language_model
from selfcorrect_rag.training.fine_tuning import (
    DROPPED,
    RunOptions,
    TrainingSettings,
    adapted,
    attend_fast,
    fine_tune,
    loading_dtype,
    option,
)

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Example(TypedDict):
    """A row as a causal language model is trained on it."""

    input_ids: "array[int]"
    labels: "array[int]"
    """The same ids, :data:`~selfcorrect_rag.training.fine_tuning.DROPPED` where there is no loss;
    the first one is."""


class Examples(NamedTuple):
    """Rows as a model is trained on them, and what became of those that were too long."""

    examples: list[Example]
    shortened: int
    """Rows that lost something of what they read."""
    left_out: int
    """Rows that are too long without all that they may lose."""

    @property
    def read(self) -> int:
        """Tokens in all."""
        return sum(len(row["input_ids"]) for row in self.examples)

    @property
    def learned(self) -> int:
        """Tokens with loss."""
        return sum(i != DROPPED for row in self.examples for i in row["labels"])


def row_counts(train: Examples, held_out: Examples) -> dict[str, int]:
    """For a report: how many rows are in either, were shortened and left out."""
    return {
        "train": len(train.examples),
        "held_out": len(held_out.examples),
        "shortened": train.shortened + held_out.shortened,
        "left_out": train.left_out + held_out.left_out,
    }


def example(ids: Sequence[int], learned: Sequence[bool]) -> Example:
    """A row whose loss is on the ids that are ``learned``."""
    labels = [i if kept else DROPPED for i, kept in zip(ids, learned, strict=True)]
    # 150,000 rows as lists would take gigabytes.
    return Example(input_ids=array("i", ids), labels=array("i", [DROPPED, *labels[1:]]))


def padded(rows: Sequence[Example]) -> dict[str, Any]:
    """Rows side by side, each of shape (rows, tokens), padded on the right.

    What is attended to follows from the rows' lengths: an end token is no padding, whatever its id.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    lengths = torch.tensor([len(row["input_ids"]) for row in rows])

    def table(columns: Sequence["array[int]"], fill: int) -> torch.Tensor:
        tensors = [torch.tensor(column) for column in columns]
        return pad_sequence(tensors, batch_first=True, padding_value=fill).long()

    return {
        "input_ids": table([row["input_ids"] for row in rows], 0),
        "labels": table([row["labels"] for row in rows], DROPPED),
        "attention_mask": (torch.arange(int(lengths.max())) < lengths[:, None]).long(),
    }


def packed(*, flash_attention: bool = False) -> Callable[[Sequence[Example]], dict[str, Any]]:
    """Rows one after the other in one sequence without padding, of shape (1, tokens).

    Positions begin at 0 in each row. Where they do, transformers lets no row see another: by a
    mask that is blocked by rows, and where ``flash_attention`` computes it, by the rows' lengths.
    It would not where the model keeps a cache, so that it is told not to.
    """
    from transformers import DataCollatorWithFlattening

    flatten: Any = DataCollatorWithFlattening(  # type: ignore[no-untyped-call]
        return_flash_attn_kwargs=flash_attention
    )

    def collate(rows: Sequence[Example]) -> dict[str, Any]:
        return {**flatten(rows, return_tensors="pt"), "use_cache": False}

    return collate


def is_held_out(question: str, share: float) -> bool:
    """Whether a question is among the ``share`` (in [0, 1]) that is held out: by its words, so
    that the same question always is, or never."""
    words = " ".join(question.lower().split())
    digest = hashlib.sha256(words.encode(errors="replace")).digest()
    return int.from_bytes(digest[:4]) < share * 2**32


class TokenPrediction(NamedTuple):
    """The model's prediction of one token from the tokens before it."""

    token_id: int
    loss: float
    """Negative natural log-probability."""
    chosen: int
    """The likeliest id of the token's group; -1 where it is in none."""


def predict_tokens(
    trainer: Any, examples: Sequence[Example], groups: Sequence[Sequence[int]]
) -> list[TokenPrediction]:
    """Each token with a label in ``examples``, in their order.

    Args:
        trainer: one that has trained; of several processes, all must call.
        examples: rows to read.
        groups: ids that exclude each other.
    """
    import torch

    def look(logits: "Tensor", labels: "Tensor") -> "Tensor":
        logprobs = logits[:, :-1].float().log_softmax(-1)
        right = labels[:, 1:]
        losses = -logprobs.gather(-1, right.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        chosen = torch.full_like(right, -1)
        for group in groups:
            ids = torch.tensor(group, device=logits.device)
            best = ids[logprobs[..., ids].argmax(-1)]
            chosen = torch.where(torch.isin(right, ids), best, chosen)
        return torch.stack([losses, chosen.float()], dim=-1)

    if not examples:
        return []
    trainer.data_collator = padded
    trainer.preprocess_logits_for_metrics = look
    looked = trainer.predict(examples)
    right = looked.label_ids[:, 1:]
    learned = right != DROPPED
    return [
        TokenPrediction(int(token_id), float(loss), int(chosen))
        for token_id, (loss, chosen) in zip(
            right[learned].tolist(), looked.predictions[learned].tolist(), strict=True
        )
    ]


@dataclass(frozen=True)
class CausalLMSettings(TrainingSettings):
    """Settings of a model that answers questions; defaults are Self-RAG's (B.1)."""

    packing: bool = option(
        True,
        "rows of a forward pass in one sequence without padding, masked from each other; off for "
        "models that take no positions",
    )
    held_out_ratio: float = option(
        0.02, "share of the questions held out from training, for the report; in [0, 1)", "SHARE"
    )


class _Row(Protocol):
    @property
    def question(self) -> str: ...


Row = TypeVar("Row", bound=_Row)


def load_decoder(
    settings: CausalLMSettings, base: "tuple[PreTrainedModel, PreTrainedTokenizerBase] | None"
) -> tuple[Any, "PreTrainedTokenizerBase"]:
    """``base``, or else ``settings.model`` with its tokenizer.

    Raises:
        ModelNotFound: the model cannot be loaded.
        BadTrainingData: it has an encoder, or is not named.
    """
    if not (base or settings.model):
        raise BadTrainingData("settings.model names no model: give a folder or a hub name")
    model, tokenizer = base or load_language_model(settings.model, loading_dtype(settings))
    if model.config.is_encoder_decoder:
        raise BadTrainingData(f"{settings.model} has an encoder: what answers is a decoder alone")
    return model, tokenizer


def tune_answering(
    model: Any,
    rows: Sequence[Row],
    encode: Callable[[Sequence[Row]], Examples],
    out: Path,
    settings: CausalLMSettings,
    run_options: RunOptions,
    *,
    run: Mapping[str, Any],
    tokens: Collection[int] = (),
) -> tuple[Any, Examples, Examples]:
    """Train a causal ``model`` in place, or an adapter around it, on the rows not held out.

    ``run`` is what ``prepare`` gave; ``tokens`` are new ids, whose rows of embedding and head an
    adapter trains too.

    Returns:
        The Trainer (see :func:`~.fine_tuning.fine_tune`), what it learned, and what was held out.

    Raises:
        BadTrainingData: there is no row to train on.
    """
    train = encode([row for row in rows if not is_held_out(row.question, settings.held_out_ratio)])
    held_out = encode([row for row in rows if is_held_out(row.question, settings.held_out_ratio)])
    if not train.examples:
        raise BadTrainingData(f"no row of the {len(rows)} is left to train on")
    is_flash = attend_fast(model, settings)
    collate = packed(flash_attention=is_flash) if settings.packing else padded
    model = adapted(model, settings, "CAUSAL_LM", tokens=tokens)
    trainer = fine_tune(model, train.examples, collate, out, settings, run_options, run=run)
    return trainer, train, held_out
