"""The reader's network in torch, for training: MiniLM's or MPNet's encoder with heads for spans and
judgements."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from safetensors.numpy import load_file
from torch.nn import Linear, Module
from transformers import BertConfig, BertModel, MPNetConfig, MPNetModel

from selfcorrect_rag.reader.network import EMBEDDER, READER, SHIPPED, WORDS

Size = Literal["small", "base"]
NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MINILM = BertConfig(
    hidden_size=384,
    intermediate_size=1536,
    num_hidden_layers=6,
    num_attention_heads=12,
    **NO_DROPOUT,
)
MPNET = MPNetConfig(
    vocab_size=30527, max_position_embeddings=514, layer_norm_eps=1e-5, **NO_DROPOUT
)
FROZEN_LAYERS = 4
"""Lower layers of MPNet that are not trained, which costs nothing and saves a third of the time."""
BASES: dict[str, Path] = {"small": SHIPPED, "base": Path("build/mpnet/all-mpnet-base-v2")}
"""The folders of the encoders and tokenizers that training starts from; `make` fetches MPNet's."""


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

    Span heads read every token, the others the first one. Word embeddings are not trained: MiniLM's
    are shared with the embedder.
    """

    def __init__(self, size: Size = "small") -> None:
        super().__init__()
        self.size = size
        self.bert: Any = (
            BertModel(MINILM, add_pooling_layer=False)
            if size == "small"
            else MPNetModel(MPNET, add_pooling_layer=False)
        )
        width = self.bert.config.hidden_size
        self.bert.embeddings.word_embeddings.requires_grad_(False)
        self.span, self.first = Linear(width, 2), Linear(width, 2)

    def forward(self, ids: torch.Tensor, types: torch.Tensor, mask: torch.Tensor) -> HeadLogits:
        """Read rows of token ids (B, T), with their segments and the mask of real tokens."""
        segments = {"token_type_ids": types} if self.size == "small" else {}
        states = self.bert(ids, attention_mask=mask, **segments).last_hidden_state.float()
        start, end = self.span(states).float().unbind(-1)
        relevant, retrieve = self.first(states[:, 0]).float().unbind(-1)
        return HeadLogits(start, end, relevant, retrieve)


def pretrained(size: Size = "small", folder: Path | None = None) -> ReaderNetwork:
    """Return the network to start from: the reader in ``folder``; or, with random heads, the
    encoder of the shipped embedder, or MPNet's."""
    network = ReaderNetwork(size)
    if folder:
        network.load_state_dict(dequantise(_stored(folder, READER)))
    else:
        stored = dequantise(_stored(BASES[size], EMBEDDER if size == "small" else "model"))
        prefix = "" if size == "small" else "bert."
        missing, _ = network.load_state_dict(
            {prefix + name: values for name, values in stored.items()}, strict=False
        )
        if unknown := [name for name in missing if name.startswith("bert.")]:
            raise ValueError(f"{BASES[size]} lacks weights of the encoder: {unknown}")
        for head in (network.span, network.first):
            torch.nn.init.normal_(head.weight, std=0.02)
            torch.nn.init.zeros_(head.bias)
    if size == "base":
        for part in (network.bert.embeddings, *network.bert.encoder.layer[:FROZEN_LAYERS]):
            part.requires_grad_(False)
    return network


def load_trained(folder: Path) -> ReaderNetwork:
    """Load the network that `reader_training.train` left in ``folder``, of whatever size."""
    stored = load_file(folder / "trained" / "model.safetensors")
    is_base = "bert.encoder.relative_attention_bias.weight" in stored
    network = ReaderNetwork("base" if is_base else "small")
    network.load_state_dict(dequantise(stored))
    return network.eval()


def _stored(folder: Path, name: str) -> dict[str, "np.ndarray[Any, Any]"]:
    paths = [(folder / name).with_suffix(".safetensors"), folder / WORDS]
    return {k: v for path in paths if path.exists() for k, v in load_file(path).items()}


def dequantise(stored: Mapping[str, "np.ndarray[Any, Any]"]) -> dict[str, torch.Tensor]:
    """Return tensors of a file by `onnx_graph.write_network`, or of any other, in float32."""
    one = np.float32(1)
    return {
        name: torch.from_numpy(values.astype(np.float32) * stored.get(f"{name}:scale", one))
        for name, values in stored.items()
        if not name.endswith(":scale")
    }
