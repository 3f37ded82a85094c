"""Write BERT encoders as ONNX graphs that compute in float32 from weights stored as int8.

The weights stay in safetensors files beside the graph, which points into them (ONNX's external
data): each matrix as int8 with one float32 scale a row, each vector in half precision. The word
embeddings have a file of their own, which both encoders share.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper
from safetensors.numpy import save_file

from selfcorrect_rag.reader.network import EMBEDDER, READER, WORDS

HEADS = 12
"""Attention heads of MiniLM."""
OPSET = 20
_TYPES = {"I8": TensorProto.INT8, "F16": TensorProto.FLOAT16, "F32": TensorProto.FLOAT}


def save_quantised(tensors: Mapping[str, "np.ndarray[Any, Any]"], path: Path) -> None:
    """Write float tensors to a safetensors file, quantised as this module says."""
    stored: dict[str, np.ndarray[Any, Any]] = {}
    for name, values in tensors.items():
        if values.ndim == 2:
            scale = np.maximum(np.abs(values).max(1, keepdims=True) / 127, 1e-8)
            stored[name] = (values / scale).round().astype(np.int8)
            stored[f"{name}:scale"] = scale.astype(np.float32)
        else:
            stored[name] = values.astype(np.float16)
    save_file(stored, path)


def write_graph(folder: Path, kind: Literal["reader", "embedder"]) -> Path:
    """Write the graph of the weights in ``folder``, which hold an encoder of either kind.

    The reader's outputs are ``start`` and ``end`` (B, T), ``relevant`` and ``retrieve`` (B,), all
    logits; the embedder's is ``embedding`` (B, width), of unit length.
    """
    path = folder / (READER if kind == "reader" else EMBEDDER)
    graph = _Graph(folder, path.with_suffix(".safetensors").name)
    states = graph.encoder()
    if kind == "reader":
        span = graph.linear(states, "span")
        first = graph.linear(graph.node("Gather", states, graph.whole(0), axis=1), "first")
        for name, values, place in (
            ("start", span, 0),
            ("end", span, 1),
            ("relevant", first, 0),
            ("retrieve", first, 1),
        ):
            graph.node("Gather", values, graph.whole(place), axis=-1, output=name)
        outputs = [("start", ["rows", "tokens"]), ("end", ["rows", "tokens"])]
        outputs += [("relevant", ["rows"]), ("retrieve", ["rows"])]
    else:
        mask = graph.node("Cast", "attention_mask", to=TensorProto.FLOAT)
        kept = graph.node("Mul", states, graph.node("Unsqueeze", mask, graph.whole([2])))
        mean = graph.node("ReduceSum", kept, graph.whole([1]), keepdims=0)
        graph.node("LpNormalization", mean, axis=-1, p=2, output="embedding")
        outputs = [("embedding", ["rows", graph.width])]
    inputs = ["input_ids", "attention_mask", "token_type_ids"]
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            kind,
            [
                helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "tokens"])
                for name in inputs
            ],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in outputs],
            graph.initializers,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=10,
        producer_name="selfcorrect-rag",
    )
    onnx.save(model, path)
    return path


class _Graph:
    """Nodes and initializers of a graph under construction."""

    def __init__(self, folder: Path, weights: str) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._places = {**_tensors(folder / weights), **_tensors(folder / WORDS)}
        self._known: dict[str, str] = {}
        names = [name for name in self._places if name.endswith("intermediate.dense.weight")]
        self.layers, self.width = len(names), self._places[names[0]][1]["shape"][1]

    def node(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def whole(self, value: Any) -> str:
        """A constant of integers."""
        return self._constant(np.array(value, dtype=np.int64))

    def number(self, value: float) -> str:
        """A constant float."""
        return self._constant(np.array(value, dtype=np.float32))

    def _constant(self, value: "np.ndarray[Any, Any]") -> str:
        name = f"constant_{len(self.initializers)}"
        self.initializers.append(onnx.numpy_helper.from_array(value, name))
        return name

    def stored(self, name: str) -> str:
        """A tensor as it is stored, left in its file."""
        if name not in self._known:
            file, place = self._places[name]
            tensor = TensorProto(name=name, data_type=_TYPES[place["dtype"]], dims=place["shape"])
            tensor.data_location = TensorProto.EXTERNAL
            begin, end = place["data_offsets"]
            given = {"location": file, "offset": place["start"] + begin, "length": end - begin}
            for key, value in given.items():
                tensor.external_data.add(key=key, value=str(value))
            self.initializers.append(tensor)
            self._known[name] = name
        return name

    def vector(self, name: str) -> str:
        return self.node("Cast", self.stored(name), to=TensorProto.FLOAT)

    def rows(self, name: str, places: str) -> str:
        """The rows of an embedding matrix at these places: only they become float32."""
        values = self.node("Gather", self.stored(name), places, axis=0)
        scales = self.node("Gather", self.stored(f"{name}:scale"), places, axis=0)
        return self.node("Mul", self.node("Cast", values, to=TensorProto.FLOAT), scales)

    def linear(self, states: str, name: str) -> str:
        matrix = self.node("Cast", self.stored(f"{name}.weight"), to=TensorProto.FLOAT)
        matrix = self.node("Mul", matrix, self.stored(f"{name}.weight:scale"))
        product = self.node("MatMul", states, self.node("Transpose", matrix, perm=[1, 0]))
        return self.node("Add", product, self.vector(f"{name}.bias"))

    def norm(self, states: str, name: str) -> str:
        weight, bias = self.vector(f"{name}.weight"), self.vector(f"{name}.bias")
        return self.node("LayerNormalization", states, weight, bias, axis=-1, epsilon=1e-12)

    def encoder(self) -> str:
        """The states (B, T, width) behind the last layer."""
        length = self.node("Shape", "input_ids", start=1, end=2)
        places = self.node(
            "Range", self.whole(0), self.node("Squeeze", length, self.whole([0])), self.whole(1)
        )
        words = self.rows("bert.embeddings.word_embeddings.weight", "input_ids")
        types = self.rows("bert.embeddings.token_type_embeddings.weight", "token_type_ids")
        states = self.node("Add", words, types)
        places = self.rows("bert.embeddings.position_embeddings.weight", places)
        states = self.norm(self.node("Add", states, places), "bert.embeddings.LayerNorm")
        mask = self.node("Cast", "attention_mask", to=TensorProto.FLOAT)
        mask = self.node("Unsqueeze", mask, self.whole([1, 2]))
        hidden = self.node("Mul", self.node("Sub", self.number(1.0), mask), self.number(-1e9))
        for layer in range(self.layers):
            states = self._layer(states, hidden, f"bert.encoder.layer.{layer}")
        return states

    def _layer(self, states: str, hidden: str, name: str) -> str:
        split, merged = self.whole([0, 0, HEADS, -1]), self.whole([0, 0, self.width])

        def heads(kind: str, order: list[int]) -> str:
            given = self.linear(states, f"{name}.attention.self.{kind}")
            return self.node("Transpose", self.node("Reshape", given, split), perm=order)

        query, key = heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1])
        scores = self.node("MatMul", query, key)
        scores = self.node("Mul", scores, self.number((HEADS / self.width) ** 0.5))
        shares = self.node("Softmax", self.node("Add", scores, hidden), axis=-1)
        read = self.node("MatMul", shares, heads("value", [0, 2, 1, 3]))
        read = self.node("Reshape", self.node("Transpose", read, perm=[0, 2, 1, 3]), merged)
        read = self.linear(read, f"{name}.attention.output.dense")
        states = self.norm(self.node("Add", read, states), f"{name}.attention.output.LayerNorm")
        wide = self.node("Gelu", self.linear(states, f"{name}.intermediate.dense"))
        added = self.node("Add", self.linear(wide, f"{name}.output.dense"), states)
        return self.norm(added, f"{name}.output.LayerNorm")


def _tensors(path: Path) -> dict[str, tuple[str, Any]]:
    """File, type, shape and place of each tensor of a safetensors file."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(size))
    header.pop("__metadata__", None)
    return {name: (path.name, {**place, "start": 8 + size}) for name, place in header.items()}
