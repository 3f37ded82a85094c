"""Rows held out from a fine-tuning, and what a language model makes of their tokens."""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from selfcorrect_rag.training.batches import Example, padded
from selfcorrect_rag.training.fine_tuning import DROPPED

if TYPE_CHECKING:
    from torch import Tensor


def is_held_out(question: str, share: float) -> bool:
    """Whether a question is among the ``share`` (in [0, 1]) that is held out: by its words, so
    that the same question always is, or never."""
    words = " ".join(question.lower().split())
    digest = hashlib.sha256(words.encode(errors="replace")).digest()
    return int.from_bytes(digest[:4]) < share * 2**32


class Read(NamedTuple):
    """What the model thought of one token, having read what stands before it."""

    token_id: int
    loss: float
    """Negative natural log-probability."""
    chosen: int
    """The likeliest id of the token's group; -1 where it is in none."""


def read_tokens(
    trainer: Any, examples: Sequence[Example], groups: Sequence[Sequence[int]]
) -> list[Read]:
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
        Read(int(token_id), float(loss), int(chosen))
        for token_id, (loss, chosen) in zip(
            right[learned].tolist(), looked.predictions[learned].tolist(), strict=True
        )
    ]
