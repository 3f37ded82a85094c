"""The reader's network in torch, for training: MiniLM's encoder with heads for spans and
judgements."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import load_file
from torch.nn import Embedding, LayerNorm, Linear, Module, ModuleDict, ModuleList
from torch.nn.functional import gelu, scaled_dot_product_attention

from selfcorrect_rag.reader.network import EMBEDDER, SHIPPED, WORDS

WIDTH, BETWEEN, HEADS, LAYERS, VOCABULARY, POSITIONS = 384, 1536, 12, 6, 30522, 512
"""MiniLM's sizes."""


class HeadLogits(NamedTuple):
    """Logits of the heads for a batch of B rows of T tokens, in float32."""

    start: torch.Tensor
    """(B, T): where the answer starts."""
    end: torch.Tensor
    """(B, T): its last token."""
    relevant: torch.Tensor
    """(B,): whether the passage answers the question."""
    retrieve: torch.Tensor
    """(B,): of a row that is a question alone: whether it needs evidence."""


class ReaderNetwork(Module):
    """The encoder, and a linear layer for each judgement.

    Span heads read every token, the others the first one. Word embeddings are MiniLM's own and
    are not trained: the embedder shares them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bert = _Bert()
        self.span, self.first = Linear(WIDTH, 2), Linear(WIDTH, 2)

    def forward(self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> HeadLogits:
        """Read rows of token ids (B, T), with their segments and the mask of real tokens."""
        states = self.bert(ids, types, mask).float()
        start, end = self.span(states).float().unbind(-1)
        relevant, retrieve = self.first(states[:, 0]).float().unbind(-1)
        return HeadLogits(start, end, relevant, retrieve)


class _Bert(Module):
    """Devlin et al. 2019, without dropout and pooler; tensors are named as in its checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        names = ("word_embeddings", "position_embeddings", "token_type_embeddings")
        sizes = (VOCABULARY, POSITIONS, 2)
        tables = {name: Embedding(size, WIDTH) for name, size in zip(names, sizes, strict=True)}
        self.embeddings = ModuleDict({**tables, "LayerNorm": LayerNorm(WIDTH, eps=1e-12)})
        self.encoder = ModuleDict({"layer": ModuleList(_layer() for _ in range(LAYERS))})

    def forward(self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> Any:
        part: Any = self.embeddings
        places = part["position_embeddings"](torch.arange(ids.shape[1]))
        words = part["word_embeddings"](ids) + part["token_type_embeddings"](types)
        states = part["LayerNorm"](words + places)
        layers: Any = self.encoder["layer"]
        for layer in layers:
            own, after = layer["attention"]["self"], layer["attention"]["output"]
            query, key, value = (
                own[name](states).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                for name in ("query", "key", "value")
            )
            seen = mask.bool()[:, None, None, :]
            read = scaled_dot_product_attention(query, key, value, attn_mask=seen)
            read = after["dense"](read.transpose(1, 2).flatten(2))
            states = after["LayerNorm"](read + states)
            wide = gelu(layer["intermediate"]["dense"](states))
            states = layer["output"]["LayerNorm"](layer["output"]["dense"](wide) + states)
        return states


def _layer() -> ModuleDict:
    def projection(width: int) -> ModuleDict:
        norm = LayerNorm(WIDTH, eps=1e-12)
        return ModuleDict({"dense": Linear(width, WIDTH), "LayerNorm": norm})

    own = ModuleDict({name: Linear(WIDTH, WIDTH) for name in ("query", "key", "value")})
    return ModuleDict(
        {
            "attention": ModuleDict({"self": own, "output": projection(WIDTH)}),
            "intermediate": ModuleDict({"dense": Linear(WIDTH, BETWEEN)}),
            "output": projection(BETWEEN),
        }
    )


def pretrained(folder: Path = SHIPPED) -> ReaderNetwork:
    """Return the network with the encoder of the embedder in ``folder`` and random heads."""
    network = ReaderNetwork()
    stored = {
        **load_file((folder / EMBEDDER).with_suffix(".safetensors")),
        **load_file(folder / WORDS),
    }
    missing, _ = network.load_state_dict(dequantise(stored), strict=False)
    if set(missing) != {
        f"{head}.{part}" for head in ("span", "first") for part in ("weight", "bias")
    }:
        raise ValueError(f"{folder} lacks weights of the encoder: {missing}")
    for head in (network.span, network.first):
        torch.nn.init.normal_(head.weight, std=0.02)
        torch.nn.init.zeros_(head.bias)
    return network


def dequantise(stored: Mapping[str, "np.ndarray[Any, Any]"]) -> dict[str, torch.Tensor]:
    """Return tensors of a file by `onnx_graph.save_quantised` in float32."""
    return {
        name: torch.from_numpy(
            values.astype(np.float32) * stored.get(f"{name}:scale", np.float32(1))
        )
        for name, values in stored.items()
        if not name.endswith(":scale")
    }
