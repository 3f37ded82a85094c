"""BERT's encoder in plain torch: importing transformers takes longer than a first answer."""

from typing import Any, NamedTuple

import torch
from torch.nn import Embedding, LayerNorm, Linear, Module, ModuleDict, ModuleList
from torch.nn.functional import gelu, scaled_dot_product_attention


class Architecture(NamedTuple):
    """The sizes of an encoder; by default MiniLM's."""

    hidden_size: int = 384
    intermediate_size: int = 1536
    heads: int = 12
    layers: int = 6
    vocabulary: int = 30522
    positions: int = 512
    """The most tokens of a row."""


class Bert(Module):
    """Devlin et al. 2019, without dropout and pooler; tensors are named as in its checkpoints."""

    def __init__(self, sizes: Architecture | None = None) -> None:
        super().__init__()
        sizes = sizes or Architecture()
        self.embeddings = _Embeddings(sizes)
        layers = ModuleList(_Layer(sizes) for _ in range(sizes.layers))
        self.encoder = ModuleDict({"layer": layers})

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The states (B, T, hidden_size) of B rows of T token ids.

        Args:
            ids: (B, T).
            mask: (B, T), zero at padding.
            types: (B, T), the segment of each token, 0 or 1; 0 by default.
        """
        types = torch.zeros_like(ids) if types is None else types
        states: torch.Tensor = self.embeddings(ids, types)
        seen = mask.bool()[:, None, None, :]
        layers: Any = self.encoder["layer"]
        for layer in layers:
            states = layer(states, seen)
        return states


class _Embeddings(Module):
    def __init__(self, sizes: Architecture) -> None:
        super().__init__()
        self.word_embeddings = Embedding(sizes.vocabulary, sizes.hidden_size)
        self.position_embeddings = Embedding(sizes.positions, sizes.hidden_size)
        self.token_type_embeddings = Embedding(2, sizes.hidden_size)
        self.LayerNorm = _norm(sizes)

    def forward(self, ids: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
        places = self.position_embeddings(torch.arange(ids.shape[1], device=ids.device))
        states = self.word_embeddings(ids) + self.token_type_embeddings(types) + places
        normed: torch.Tensor = self.LayerNorm(states)
        return normed


class _Layer(Module):
    def __init__(self, sizes: Architecture) -> None:
        super().__init__()
        width, between = sizes.hidden_size, sizes.intermediate_size
        self.heads = sizes.heads
        attention = {name: Linear(width, width) for name in ("query", "key", "value")}
        self.attention = ModuleDict(
            {"self": ModuleDict(attention), "output": _projection(sizes, width)}
        )
        self.intermediate = ModuleDict({"dense": Linear(width, between)})
        self.output = _projection(sizes, between)

    def forward(self, states: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        given: Any = self.attention["self"]
        query, key, value = (
            given[name](states).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        read = scaled_dot_product_attention(query, key, value, attn_mask=seen)
        states = _added(self.attention["output"], read.transpose(1, 2).flatten(2), states)
        return _added(self.output, gelu(self.intermediate["dense"](states)), states)


def _projection(sizes: Architecture, width: int) -> ModuleDict:
    return ModuleDict({"dense": Linear(width, sizes.hidden_size), "LayerNorm": _norm(sizes)})


def _norm(sizes: Architecture) -> LayerNorm:
    return LayerNorm(sizes.hidden_size, eps=1e-12)


def _added(projection: Any, new: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
    """The states with the new ones, projected."""
    normed: torch.Tensor = projection["LayerNorm"](projection["dense"](new) + states)
    return normed
