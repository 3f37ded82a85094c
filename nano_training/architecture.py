"""The nano generator's network: a small Llama whose first heads already look one to three back.

Copying a name needs a head that finds the place after an earlier occurrence of the last token
(induction), and that needs a head that looks at the previous token. Four heads get it at the start
from constant biases whose rotary product peaks at a fixed offset; training may change them.
"""

import math

import torch
from transformers import LlamaConfig, LlamaForCausalLM

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
