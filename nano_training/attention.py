"""Attention in rows with branches: a token looks back at what all share and at its own branch."""

from typing import Any

import torch
from transformers import AttentionInterface

BY_BRANCH = "by_branch"
"""Name of this attention, as ``set_attn_implementation`` takes it."""
SHORT = 256
"""Up to so many tokens a mask over all pairs is faster than a product for each branch."""


def by_branch(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    branch: torch.Tensor,
    scaling: float,
    **unused: Any,
) -> tuple[torch.Tensor, None]:
    """Attention over rows of which each has branches.

    Args:
        query: like ``key`` and ``value``, (rows, heads, tokens, size).
        branch: (rows, tokens): 0 in what the branches of a row share, which comes first, and in
            the padding.

    Returns:
        (rows, tokens, heads, size), and no weights.
    """
    if query.shape[2] <= SHORT:
        seen = _seen(branch)
        found = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=seen, scale=scaling
        )
    else:
        rows = zip(query * scaling, key, value, branch, strict=True)
        found = torch.stack([_of_row(*row) for row in rows])
    return found.transpose(1, 2), None


def _seen(branch: torch.Tensor) -> torch.Tensor:
    length = branch.shape[1]
    back = torch.ones(length, length, dtype=torch.bool).tril()
    seen, looking = branch[:, None, :], branch[:, :, None]
    return (back & ((seen == 0) | (seen == looking)))[:, None]


def _of_row(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, branch: torch.Tensor
) -> torch.Tensor:
    sizes: list[int] = torch.unique_consecutive(branch, return_counts=True)[1].tolist()
    (first_query, *queries), (first_key, *keys), (first_value, *values) = (
        torch.split(x, sizes, 1) for x in (query, key, value)
    )
    parts = [_causal(first_query, first_key, first_value)]
    for q, k, v in zip(queries, keys, values, strict=True):
        parts.append(_causal(q, torch.cat([first_key, k], 1), torch.cat([first_value, v], 1)))
    return torch.cat(parts, 1)


def _causal(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """What the last tokens of ``key`` see; its gradient is faster on a CPU than that of
    ``scaled_dot_product_attention``."""
    tokens, before = query.shape[1], key.shape[1] - query.shape[1]
    future = torch.full((tokens, tokens), -torch.inf, dtype=query.dtype).triu(1)
    bias = torch.nn.functional.pad(future, (before, 0))
    return torch.baddbmm(bias, query, key.mT).softmax(-1) @ value


AttentionInterface.register(BY_BRANCH, by_branch)
