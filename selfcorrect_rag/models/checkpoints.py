"""Loads transformers checkpoints, and tokenizers with the ids that checkpoints were trained on."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selfcorrect_rag.errors import ModelNotFound, SelfCorrectError, require

Encoded = dict[str, list[int]]
"""A model's inputs for one text: ``input_ids``, ``attention_mask`` and so on."""
CONFIG, RULES = "tokenizer_config.json", "tokenizer.json"
LLAMAS = {"LlamaTokenizer", "LlamaTokenizerFast", "llama", "mistral"}
"""Kinds of Llama's tokenizer, as ``tokenizer_config.json`` or else ``config.json`` name them."""

# oneDNN and PyTorch keep kernels of 1,024 shapes, and texts have many lengths: 0.5 GB, no faster.
for _name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):
    os.environ.setdefault(_name, "64")


def resolve_device(device: str | None, dtype: str | None = None) -> tuple[str, str]:
    """Return device and dtype; by default the best device, bfloat16 on CUDA, float32 elsewhere."""
    torch = require("torch", "transformers")
    if device is None:
        mps = torch.backends.mps.is_available()
        device = "cuda" if torch.cuda.is_available() else "mps" if mps else "cpu"
    return device, dtype or ("bfloat16" if device.startswith("cuda") else "float32")


def max_input_tokens(model: Any, tokens: int) -> int:
    """Return ``tokens``, or the number of the model's positions if that is lower."""
    return min(tokens, getattr(model.config, "max_position_embeddings", None) or tokens)


def encode_texts(tokenizer: Any, *texts: list[str], **options: Any) -> list[Encoded]:
    """Return the inputs for each text or pair of texts, without special tokens that they spell."""
    special = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}  # this encodes text too
    given = tokenizer(*texts, return_special_tokens_mask=True, **options)
    encoded = []
    for row, mask in enumerate(given.pop("special_tokens_mask")):
        ids = given["input_ids"][row]
        kept = [i for i, added in enumerate(mask) if added or ids[i] not in special]
        encoded.append({name: [given[name][row][i] for i in kept] for name in given})
    return encoded


@contextmanager
def loading(name_or_path: str | Path, what: str = "model") -> Iterator[None]:
    """Raise whatever a library raises in the block as :class:`ModelNotFound`, with the remedy."""
    try:
        yield
    except SelfCorrectError:
        raise
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), repr(error))
        raise ModelNotFound(
            f"cannot load a {what} from {name_or_path}: {reason} (give a folder with config.json, "
            "weights and tokenizer.json or tokenizer.model, a GGUF file, or a hub name)"
        ) from error


def load_language_model(name_or_path: str | Path, dtype: str) -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer from a folder, GGUF file or hub name."""
    return load_weights(name_or_path, dtype), load_tokenizer(name_or_path)


def load_weights(name_or_path: str | Path, dtype: str) -> Any:
    """Load a causal language model; those of a GGUF file are dequantised to ``dtype``."""
    transformers = require("transformers", "transformers")
    source, options = _locate(name_or_path)
    if options and hasattr(transformers, "GgufConfig"):
        # By default transformers 5.23 keeps packed weights, which can be neither trained nor saved.
        options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    with loading(name_or_path):
        return transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)


def _locate(name_or_path: str | Path) -> tuple[str | Path, dict[str, Any]]:
    """Return the first argument of ``from_pretrained``, and ``gguf_file`` for a GGUF file."""
    path = Path(name_or_path)
    if path.suffix.lower() != ".gguf":
        return name_or_path, {}
    for package in ("gguf", "accelerate"):
        require(package, "gguf")
    return path.parent, {"gguf_file": path.name}


def load_tokenizer(name_or_path: str | Path) -> Any:
    """Load a language model's tokenizer, with the ids that the model was trained on.

    A ``tokenizer.json`` is taken as it is: transformers 5 would make Llama's anew, with other rules
    for spaces. A Llama or Mistral checkpoint with ``tokenizer.model`` alone gets the ids of
    transformers 4.36.2, with which Self-RAG's authors ran theirs: a space before the text behind
    every special token, whatever ``legacy`` says. A GGUF file's is as transformers converts it.
    """
    transformers = require("transformers", "transformers")
    source, options = _locate(name_or_path)
    with loading(name_or_path, "tokenizer"):
        if options:
            return transformers.AutoTokenizer.from_pretrained(source, **options)
        folder = Path(name_or_path)
        if not folder.is_dir():
            hub = require("huggingface_hub", "transformers")
            files = ["*token*", "config.json", "vocab*", "merges.txt", "*.jinja", "*.model"]
            folder = Path(hub.snapshot_download(str(name_or_path), allow_patterns=files))
        config = _json(folder / CONFIG)
        kind = config.get("tokenizer_class") or _json(folder / "config.json").get("model_type")
        is_llama = kind in LLAMAS
        has_rules = (folder / RULES).exists()
        auto = transformers.PreTrainedTokenizerFast if has_rules else transformers.AutoTokenizer
        tokenizer = auto.from_pretrained(folder)
        if is_llama and not has_rules:
            tokenizer = _as_official(tokenizer, folder, config)
        elif is_llama:
            _set_ends(tokenizer, config)
    return tokenizer


def save_tokenizer(tokenizer: Any, folder: Path) -> None:
    """Write a tokenizer so that it gives the same ids to whoever loads it: by ``tokenizer.json``,
    which has all its rules."""
    tokenizer.save_pretrained(folder)
    if not (folder / RULES).exists():
        return
    config = _json(folder / CONFIG)
    config["tokenizer_class"] = "TokenizersBackend"  # takes tokenizer.json as it is
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _as_official(tokenizer: Any, folder: Path, config: dict[str, Any]) -> Any:
    """Return a Llama tokenizer with the rules of transformers 4.36.2; any other kind unchanged."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    state = json.loads(tokenizer.backend_tokenizer.to_str())
    if not state["model"].get("byte_fallback") or state["model"]["type"] != "BPE":
        return tokenizer  # Llama 3's, or a unigram model
    spaces = [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    ]
    state["normalizer"] = {"type": "Sequence", "normalizers": spaces}
    named = _json(folder / "special_tokens_map.json")
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": ""}
    for source in (config, named):
        special |= {key: _content(source[key]) for key in special if source.get(key)}
    if "added_tokens_decoder" not in config:
        # Before transformers 4.34, added_tokens.json had ids only.
        known = {*special.values(), *map(_content, named.get("additional_special_tokens") or ())}
        for token in state["added_tokens"]:
            token["special"] = token["content"] in known
            token["normalized"] = not token["special"]
    keys = ("clean_up_tokenization_spaces", "model_max_length", "padding_side")
    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer.from_str(json.dumps(state)),
        name_or_path=str(folder),
        chat_template=config.get("chat_template") or tokenizer.chat_template,
        **{key: token for key, token in special.items() if token},
        **{key: config[key] for key in keys if config.get(key) is not None},
    )
    _set_ends(made, config)
    return made


def _set_ends(tokenizer: Any, config: dict[str, Any]) -> None:
    """Put ``<s>`` before a text (``add_bos_token``, true if absent) and ``</s>`` after it
    (``add_eos_token``, false if absent), as the checkpoint says."""
    from tokenizers.processors import TemplateProcessing

    before = [tokenizer.bos_token] if config.get("add_bos_token", True) else []
    after = [tokenizer.eos_token] if config.get("add_eos_token", False) else []
    backend = tokenizer.backend_tokenizer
    backend.post_processor = TemplateProcessing(
        single=[*before, "$A", *after],
        special_tokens=[(token, backend.token_to_id(token)) for token in {*before, *after}],
    )


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else str(token)


def _json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
