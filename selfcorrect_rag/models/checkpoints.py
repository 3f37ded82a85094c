"""What loading a transformers checkpoint has in common, whatever it is for."""

from pathlib import Path
from typing import Any, Literal

from selfcorrect_rag.errors import ModelNotFound


def best_device(torch: Any) -> str:
    """``cuda`` or ``mps`` where this machine has one, else ``cpu``."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def best_dtype(device: str) -> Literal["bfloat16", "float32"]:
    """bfloat16 on CUDA, float32 elsewhere: what evaluators and critics are loaded in."""
    return "bfloat16" if device.startswith("cuda") else "float32"


def taken(model: Any, tokens: int) -> int:
    """``tokens``, or as many as ``model`` has positions for where it has fewer."""
    return min(tokens, getattr(model.config, "max_position_embeddings", None) or tokens)


def unreadable(name_or_path: str | Path, error: Exception) -> ModelNotFound:
    """The error to raise where transformers raised ``error``: one line, with the remedy."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
    return ModelNotFound(
        f"cannot load a model from {name_or_path}: {reason} "
        "(give a folder with config.json, weights and tokenizer.json, or a hub name)"
    )
