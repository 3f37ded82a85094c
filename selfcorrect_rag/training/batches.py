"""Rows of token ids as batches: side by side and padded, or one after the other and packed."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypedDict

from selfcorrect_rag.training.fine_tuning import DROPPED


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
