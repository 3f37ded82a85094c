"""Write the reader as an ONNX graph that computes in float32 from matrices stored as int8.

The weights stay in safetensors files beside the graph, which points into them (ONNX's external
data): each matrix as int8 with one float32 scale a row. MiniLM's word embeddings have a file of
their own, which the embedder shares.
"""

import copy
import io
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import TensorProto
from safetensors.torch import load_file, save_file
from torch.nn import Embedding, Linear, Module
from torch.nn.functional import linear

from reader_training.torch_network import HeadLogits, ReaderNetwork
from selfcorrect_rag.reader.network import READER, WORDS

OPSET = 20


class _Quantised(Module):
    """A linear layer or an embedding whose matrix is int8; only the rows that are read become
    float32."""

    def __init__(self, layer: Linear | Embedding) -> None:
        super().__init__()
        scale = (layer.weight.abs().amax(1, keepdim=True) / 127).clamp(min=1e-8)
        self.register_buffer("weight", (layer.weight / scale).round().to(torch.int8))
        self.register_buffer("weight:scale", scale)
        self.bias = layer.bias if isinstance(layer, Linear) else None
        self.is_linear = isinstance(layer, Linear)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        weight, scale = self.get_buffer("weight"), self.get_buffer("weight:scale")
        if self.is_linear:
            return linear(given, weight.float() * scale, self.bias)
        return weight[given].float() * scale[given]


def quantise(module: Module) -> None:
    """Quantise all matrices in ``module``, in place."""
    for name, child in module.named_children():
        if isinstance(child, Linear | Embedding):
            setattr(module, name, _Quantised(child))
        else:
            quantise(child)


def write_network(network: ReaderNetwork, folder: Path) -> None:
    """Write the graph and the weights into ``folder``, without word embeddings that it has.

    The outputs are ``start`` and ``end`` (B, T), ``relevant`` and ``retrieve`` (B,), all logits.
    """
    network = copy.deepcopy(network).eval().requires_grad_(False)
    network.bert.set_attn_implementation("eager")
    quantise(network)
    path = folder / READER
    shared = folder / WORDS
    words = load_file(shared) if shared.exists() else {}
    weights = {name: t for name, t in network.state_dict().items() if name not in words}
    save_file(weights, path.with_suffix(".safetensors"))
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    of_tokens = {0: "rows", 1: "tokens"}
    axes = dict.fromkeys((*inputs, "start", "end"), of_tokens)
    whole = io.BytesIO()
    with warnings.catch_warnings(action="ignore"):  # the newer exporter needs onnxscript
        torch.onnx.export(
            network,
            (torch.ones(2, 8, dtype=torch.long),) * 3,
            whole,  # type: ignore[arg-type]
            dynamo=False,
            do_constant_folding=False,
            input_names=inputs,
            output_names=list(HeadLogits._fields),
            dynamic_axes={**axes, "relevant": {0: "rows"}, "retrieve": {0: "rows"}},
            opset_version=OPSET,
        )
    model = onnx.load_from_string(whole.getvalue())
    places = dict(_places(path.with_suffix(".safetensors")))
    places |= dict(_places(shared)) if words else {}
    for tensor in model.graph.initializer:
        if place := places.get(tensor.name):
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
    onnx.save(model, path)


def _places(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield where each tensor of a safetensors file stands."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(size))
    header.pop("__metadata__", None)
    for name, place in header.items():
        begin, end = place["data_offsets"]
        yield name, {"location": path.name, "offset": 8 + size + begin, "length": end - begin}
