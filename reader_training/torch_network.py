"""The reader's network in torch, for training: MiniLM's encoder with heads for spans and
judgements."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.numpy import load_file
from torch.nn import Linear, Module
from transformers import BertConfig, BertModel

from selfcorrect_rag.reader.network import EMBEDDER, SHIPPED, WORDS

MINILM = BertConfig(
    hidden_size=384,
    intermediate_size=1536,
    num_hidden_layers=6,
    num_attention_heads=12,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


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

    Span heads read every token, the others the first one. Word embeddings are MiniLM's and are not
    trained: the embedder shares them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bert = BertModel(MINILM, add_pooling_layer=False)
        self.bert.embeddings.word_embeddings.requires_grad_(False)
        self.span, self.first = Linear(MINILM.hidden_size, 2), Linear(MINILM.hidden_size, 2)

    def forward(self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> HeadLogits:
        """Read rows of token ids (B, T), with their segments and the mask of real tokens."""
        states = self.bert(ids, mask, types).last_hidden_state.float()
        start, end = self.span(states).float().unbind(-1)
        relevant, retrieve = self.first(states[:, 0]).float().unbind(-1)
        return HeadLogits(start, end, relevant, retrieve)


def pretrained(folder: Path = SHIPPED) -> ReaderNetwork:
    """Return the network with the encoder of the embedder in ``folder`` and random heads."""
    network = ReaderNetwork()
    weights = (folder / EMBEDDER).with_suffix(".safetensors")
    missing, _ = network.load_state_dict(
        dequantise({**load_file(weights), **load_file(folder / WORDS)}), strict=False
    )
    if unknown := [name for name in missing if name.startswith("bert.")]:
        raise ValueError(f"{folder} lacks weights of the encoder: {unknown}")
    for head in (network.span, network.first):
        torch.nn.init.normal_(head.weight, std=0.02)
        torch.nn.init.zeros_(head.bias)
    return network


def dequantise(stored: Mapping[str, "np.ndarray[Any, Any]"]) -> dict[str, torch.Tensor]:
    """Return tensors of a file by `onnx_graph.write_network` in float32."""
    one = np.float32(1)
    return {
        name: torch.from_numpy(values.astype(np.float32) * stored.get(f"{name}:scale", one))
        for name, values in stored.items()
        if not name.endswith(":scale")
    }
