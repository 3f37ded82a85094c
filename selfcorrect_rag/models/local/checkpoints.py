"""Loads transformers checkpoints."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from selfcorrect_rag.errors import ModelNotFound, SelfCorrectError, require
from selfcorrect_rag.models.local import llama_tokenizer
from selfcorrect_rag.models.local.hub import refuse_unknown
from selfcorrect_rag.models.local.llama_tokenizer import NotSentencePiece

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_CONFIG, _FILE = "tokenizer_config.json", "tokenizer.json"
_LLAMA_FILES = ("tokenizer.model", "special_tokens_map.json", "added_tokens.json")
_BACKEND = "TokenizersBackend"
"""The class of transformers that takes a tokenizer.json as it stands."""


def best_device(torch: Any) -> str:
    """``cuda`` or ``mps`` where this machine has one, else ``cpu``."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def placed(device: str | None, dtype: str | None) -> tuple[str, str]:
    """The device and dtype of an evaluator or critic that is loaded; by default the best device
    here, and bfloat16 on CUDA and float32 elsewhere.

    Raises:
        MissingExtra: torch is not installed.
    """
    device = device or best_device(require("torch", "local"))
    return device, dtype or ("bfloat16" if device.startswith("cuda") else "float32")


def taken(model: Any, tokens: int) -> int:
    """``tokens``, or the number of the model's positions if that is lower."""
    return min(tokens, getattr(model.config, "max_position_embeddings", None) or tokens)


@contextmanager
def reading(name_or_path: str | Path) -> Iterator[None]:
    """Raises :class:`ModelNotFound` where transformers cannot read a checkpoint, and at once where
    the hub does not have it."""
    refuse_unknown(name_or_path)
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise unreadable(name_or_path, error) from error


def load_language_model(
    name_or_path: str | Path, dtype: str
) -> "tuple[Any, PreTrainedTokenizerBase]":
    """A causal language model, or one with an encoder and a decoder, and its tokenizer.

    Raises:
        MissingExtra: transformers is not installed.
        ModelNotFound: no checkpoint is there, or it cannot be read.
    """
    transformers = require("transformers", "local")
    with reading(name_or_path):
        config = transformers.AutoConfig.from_pretrained(name_or_path)
        kind = "Seq2SeqLM" if config.is_encoder_decoder else "CausalLM"
        model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
            name_or_path, dtype=dtype
        )
    return model, load_tokenizer(name_or_path)


def load_tokenizer(name_or_path: str | Path, extra: str = "local") -> "PreTrainedTokenizerBase":
    """A language model's tokenizer, with the ids that the model was trained and published with.

    A ``tokenizer.json`` counts as it stands: transformers 5 would make Llama's anew from its
    vocabulary, with other rules for spaces. A Llama or Mistral checkpoint with ``tokenizer.model``
    alone is read as transformers 4.36.2 read it
    (:mod:`~selfcorrect_rag.models.local.llama_tokenizer`).

    Args:
        name_or_path: a folder or a hub name.
        extra: of this package, to be named where a package is missing.

    Raises:
        MissingExtra: transformers, or what reads ``tokenizer.model``, is not installed.
        ModelNotFound: no tokenizer is there, or it cannot be read.
    """
    transformers = require("transformers", extra)
    refuse_unknown(name_or_path)
    try:
        config = _json(name_or_path, _CONFIG)
        is_llama = _is_llama(name_or_path, config)
        if _file(name_or_path, _FILE):
            tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(name_or_path)
            if is_llama:
                named = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
                llama_tokenizer.put_ends(tokenizer.backend_tokenizer, config, named)
            return cast("PreTrainedTokenizerBase", tokenizer)
        pieces = _file(name_or_path, "tokenizer.model") if is_llama else None
        if pieces:
            try:
                return _llama(name_or_path, pieces, config, extra)
            except NotSentencePiece:
                pass  # tiktoken's, which transformers reads
        found = transformers.AutoTokenizer.from_pretrained(name_or_path)
    except SelfCorrectError:
        raise
    except Exception as error:  # each library below has errors of its own
        raise unreadable(name_or_path, error, "tokenizer") from error
    return cast("PreTrainedTokenizerBase", found)


def save_tokenizer(tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Write a tokenizer such that it gives the same ids to whoever loads it.

    ``tokenizer.json`` has all its rules, and the class that is named takes them as they stand;
    ``legacy``, which transformers leaves out, is kept for those who look for it.
    """
    tokenizer.save_pretrained(folder)
    if not (folder / _FILE).exists():
        return
    config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
    config["tokenizer_class"] = _BACKEND
    legacy = getattr(tokenizer, "legacy", tokenizer.init_kwargs.get("legacy"))
    if legacy is not None:
        config["legacy"] = legacy
    (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def unreadable(
    name_or_path: str | Path, error: Exception, what: Literal["model", "tokenizer"] = "model"
) -> ModelNotFound:
    """The error to raise where transformers raised ``error``: one line, with the remedy."""
    reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
    return ModelNotFound(
        f"cannot load a {what} from {name_or_path}: {reason} (give a folder with config.json, "
        "weights and tokenizer.json or tokenizer.model, or a hub name)"
    )


def _llama(
    name_or_path: str | Path, pieces: Path, config: dict[str, Any], extra: str
) -> "PreTrainedTokenizerBase":
    from transformers import PreTrainedTokenizerFast

    files = {name: _file(name_or_path, name) for name in _LLAMA_FILES}
    backend = llama_tokenizer.tokenizer_of_pieces(pieces, extra)
    llama_tokenizer.add_tokens(backend, config, files)
    named = llama_tokenizer.special_tokens(config, files)
    llama_tokenizer.put_ends(backend, config, named)
    template = _file(name_or_path, "chat_template.jinja")
    kept = ("chat_template", "clean_up_tokenization_spaces", "legacy", "model_max_length")
    options = {key: config[key] for key in (*kept, "padding_side") if config.get(key) is not None}
    if template:
        options["chat_template"] = template.read_text(encoding="utf-8")
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, name_or_path=str(name_or_path), **named, **options
    )


def _is_llama(name_or_path: str | Path, config: Mapping[str, Any]) -> bool:
    named = config.get("tokenizer_class")
    if named is None:
        return _json(name_or_path, "config.json").get("model_type") in llama_tokenizer.MODEL_TYPES
    return named in llama_tokenizer.CLASSES


def _json(name_or_path: str | Path, name: str) -> dict[str, Any]:
    file = _file(name_or_path, name)
    return json.loads(file.read_text(encoding="utf-8")) if file else {}


def _file(name_or_path: str | Path, name: str) -> Path | None:
    """A file of a checkpoint, fetched where that is on a hub; None where it has none."""
    from transformers.utils.hub import cached_file

    found = cached_file(name_or_path, name, _raise_exceptions_for_missing_entries=False)
    return Path(found) if found else None
