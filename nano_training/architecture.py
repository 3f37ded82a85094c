"""The nano models' network: a small Llama, and its attention in rows with branches."""

import math
from typing import Any

import torch
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM

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
    """Causal attention of the last tokens of ``key``; its gradient is faster on a CPU than that of
    ``scaled_dot_product_attention``."""
    tokens, before = query.shape[1], key.shape[1] - query.shape[1]
    future = torch.full((tokens, tokens), -torch.inf, dtype=query.dtype).triu(1)
    bias = torch.nn.functional.pad(future, (before, 0))
    return torch.baddbmm(bias, query, key.mT).softmax(-1) @ value


AttentionInterface.register(BY_BRANCH, by_branch)


HEADS_LOOKING_BACK = {0: {0: 1, 1: 1, 2: 2, 3: 3}, 1: {0: 1}}
"""Layer -> head -> how many tokens back it looks at the start."""


def build(
    vocabulary: int, width: int = 256, layers: int = 4, heads: int = 8, inner: int = 704
) -> LlamaForCausalLM:
    """A fresh network; `width / heads` should be 32 or 64, which vLLM's CPU build can run."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=width // heads,
        intermediate_size=inner,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        attention_bias=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed" in name:
                parameter.normal_(0, 0.06)
            elif name.endswith("bias"):
                parameter.zero_()
            elif parameter.ndim == 2:
                scale = 0.6 / math.sqrt(parameter.shape[1])
                writes = name.endswith(("o_proj.weight", "down_proj.weight"))
                parameter.normal_(0, scale / (2 * layers) ** 0.25 if writes else scale)
        for layer, by_head in HEADS_LOOKING_BACK.items():
            for head, offset in by_head.items():
                look_back(model, layer, head, offset)
    return model


def look_back(model: LlamaForCausalLM, layer: int, head: int, offset: int) -> None:
    """Make a head attend `offset` tokens back, whatever the tokens are.

    A constant query c and a constant key c rotated by -`offset` give the score
    c^2 * sum_i cos(theta_i * (distance - offset)) over the eight fastest rotary frequencies.
    """
    size = model.model.layers[layer].self_attn.head_dim
    half, fast, strength = size // 2, min(8, size // 2), 6.0 * (size / 32) ** 0.25
    theta = 10000.0 ** (-torch.arange(0, size, 2).float() / size)[:fast]
    attention = model.model.layers[layer].self_attn
    rows = slice(head * size, (head + 1) * size)
    query, key = torch.zeros(size), torch.zeros(size)
    query[:fast] = strength
    key[:fast] = strength * torch.cos(offset * theta)
    key[half : half + fast] = strength * torch.sin(offset * theta)
    attention.q_proj.bias[rows], attention.k_proj.bias[rows] = query, key
    attention.q_proj.weight[rows] *= 0.1
    attention.k_proj.weight[rows] *= 0.1
    attention.v_proj.weight[rows] *= 1.6
