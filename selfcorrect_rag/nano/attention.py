"""Attention in rows with branches, without the pairs of tokens that do not see each other."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface

BY_BRANCH = "by_branch"
"""Name of this attention, as ``set_attn_implementation`` takes it."""

Borders = tuple[int, ...]
"""Where the parts of a row end: what its branches share, then each branch."""


def by_branch(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    borders: Sequence[Borders],
    scaling: float,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """Each token looks back at what all branches share and at its own branch.

    Args:
        query: like ``key`` and ``value``, (rows, heads, tokens, size).
        borders: of each row; what stands after the last is padding.

    Returns:
        (rows, tokens, heads, size), zero in the padding, and no weights.
    """
    length = query.shape[2]
    result = []
    for q, k, v, (shared, *ends) in zip(query * scaling, key, value, borders, strict=True):
        first = slice(shared)
        parts = [_attend(q[:, first], k[:, first], v[:, first])]
        for start, end in zip((shared, *ends), ends, strict=False):
            own = slice(start, end)
            keys, values = (torch.cat([x[:, first], x[:, own]], 1) for x in (k, v))
            parts.append(_attend(q[:, own], keys, values))
        padding = length - (shared, *ends)[-1]
        result.append(torch.nn.functional.pad(torch.cat(parts, 1), (0, 0, 0, padding)))
    return torch.stack(result).transpose(1, 2), None


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Causal attention of the last tokens; its gradient is several times as fast on a CPU as
    that of ``scaled_dot_product_attention``."""
    tokens, before = query.shape[1], key.shape[1] - query.shape[1]
    future = torch.full((tokens, tokens), -torch.inf, dtype=query.dtype).triu(1)
    bias = torch.nn.functional.pad(future, (before, 0))
    return torch.baddbmm(bias, query, key.mT).softmax(-1) @ value


AttentionInterface.register(BY_BRANCH, by_branch)
