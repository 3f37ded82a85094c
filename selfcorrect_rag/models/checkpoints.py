"""Loads transformers checkpoints, and tokenizers with the ids that checkpoints were trained on."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from selfcorrect_rag.errors import ModelNotFound, SelfCorrectError, require

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

HUB_SECONDS = 5
"""Seconds that the hub may take to say whether it has a model; its client retries for a minute."""
CONFIG, TOKENIZER = "tokenizer_config.json", "tokenizer.json"
LLAMA_CLASSES = frozenset({"LlamaTokenizer", "LlamaTokenizerFast"})
"""As ``tokenizer_config.json`` names them, Mistral's too."""
LLAMA_MODELS = frozenset({"llama", "mistral"})
"""As ``config.json`` names models whose tokenizer is Llama's if nothing else is said."""
OWN_CLASS = "TokenizersBackend"
"""The class of transformers that takes a ``tokenizer.json`` as it is."""


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


def check_on_hub(name_or_path: str | Path) -> None:
    """Raise ModelNotFound if there is no such folder and the hub, asked once, has no such model.

    Models in the hub's cache are not asked for.
    """
    if Path(name_or_path).exists():
        return
    hub, name = require("huggingface_hub", "transformers"), str(name_or_path)
    try:
        for file in ("config.json", TOKENIZER, CONFIG):
            if isinstance(hub.try_to_load_from_cache(name, file), str):
                return
        hub.HfApi().model_info(name, timeout=HUB_SECONDS)
    except Exception as error:  # of its client, and of the libraries below
        reason = _first_line(error)
        raise ModelNotFound(
            f"{name} is neither a folder nor a model that the hub has: {reason}"
        ) from error


@contextmanager
def loading(name_or_path: str | Path, what: str = "model") -> Iterator[None]:
    """Raise whatever a library raises in the block as :class:`ModelNotFound`, with the remedy."""
    check_on_hub(name_or_path)
    try:
        yield
    except SelfCorrectError:
        raise
    except Exception as error:
        raise ModelNotFound(
            f"cannot load a {what} from {name_or_path}: {_first_line(error)} (give a folder with "
            "config.json, weights and tokenizer.json or tokenizer.model, or a hub name)"
        ) from error


def load_language_model(
    name_or_path: str | Path, dtype: str
) -> "tuple[Any, PreTrainedTokenizerBase]":
    """Load a causal language model, or one with an encoder and a decoder, and its tokenizer."""
    transformers = require("transformers", "transformers")
    with loading(name_or_path):
        config = transformers.AutoConfig.from_pretrained(name_or_path)
        kind: Literal["Seq2SeqLM", "CausalLM"]
        kind = "Seq2SeqLM" if config.is_encoder_decoder else "CausalLM"
        auto = getattr(transformers, f"AutoModelFor{kind}")
        model = auto.from_pretrained(name_or_path, dtype=dtype)
    return model, load_tokenizer(name_or_path)


def load_tokenizer(
    name_or_path: str | Path, extra: str = "transformers"
) -> "PreTrainedTokenizerBase":
    """Load a language model's tokenizer, with the ids that the model was trained on.

    A ``tokenizer.json`` is taken as it is: transformers 5 would make Llama's anew, with other rules
    for spaces. A Llama or Mistral checkpoint with ``tokenizer.model`` alone gets the ids of
    transformers 4.36.2, with which Self-RAG's authors ran theirs: a space before the text behind
    every special token, whatever ``legacy`` says.

    Args:
        name_or_path: a folder or a hub name.
        extra: this package's extra to name if a library is missing.

    Raises:
        MissingExtra: transformers, or sentencepiece for ``tokenizer.model``, is not installed.
        ModelNotFound: no tokenizer is there, or it cannot be read.
    """
    transformers = require("transformers", extra)
    with loading(name_or_path, "tokenizer"):
        config = _json(name_or_path, CONFIG)
        named = config.get("tokenizer_class")
        is_llama = named in LLAMA_CLASSES
        if named is None:
            is_llama = _json(name_or_path, "config.json").get("model_type") in LLAMA_MODELS
        if _file(name_or_path, TOKENIZER):
            tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(name_or_path)
            if is_llama:
                _set_ends(tokenizer, config)
        else:
            if is_llama and _file(name_or_path, "tokenizer.model"):
                require("sentencepiece", extra)
            tokenizer = transformers.AutoTokenizer.from_pretrained(name_or_path)
            if is_llama:
                tokenizer = _as_official(tokenizer, name_or_path, config)
    return cast("PreTrainedTokenizerBase", tokenizer)


def save_tokenizer(tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Write a tokenizer so that it gives the same ids to whoever loads it.

    ``tokenizer.json`` has all its rules, and the class that is named takes them as they are.
    ``legacy``, which transformers 5 leaves out, is kept for those who look for it.
    """
    tokenizer.save_pretrained(folder)
    if not (folder / TOKENIZER).exists():
        return
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    config["tokenizer_class"] = OWN_CLASS
    legacy = getattr(tokenizer, "legacy", tokenizer.init_kwargs.get("legacy"))
    if legacy is not None:
        config["legacy"] = legacy
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _as_official(tokenizer: Any, name_or_path: str | Path, config: Mapping[str, Any]) -> Any:
    """A Llama tokenizer with the rules of transformers 4.36.2; any other kind unchanged."""
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
    state["pre_tokenizer"] = None
    special = _special_tokens(name_or_path, config)
    if "added_tokens_decoder" not in config:
        # Before transformers 4.34, added_tokens.json had ids only.
        names = _json(name_or_path, "special_tokens_map.json").get("additional_special_tokens")
        known = {*special.values(), *map(_content, names or ())}
        for token in state["added_tokens"]:
            token["special"] = token["content"] in known
            token["normalized"] = not token["special"]
    options = ("chat_template", "clean_up_tokenization_spaces", "legacy", "model_max_length")
    kept = {key: config[key] for key in (*options, "padding_side") if config.get(key) is not None}
    made = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=Tokenizer.from_str(json.dumps(state)),
        name_or_path=str(name_or_path),
        **special,
        **{"chat_template": tokenizer.chat_template, **kept},
    )
    _set_ends(made, config)
    return made


def _special_tokens(name_or_path: str | Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The bos, eos, unk and pad tokens that a checkpoint names."""
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": None}
    for source in (config, _json(name_or_path, "special_tokens_map.json")):
        named |= {key: _content(source[key]) for key in named if source.get(key)}
    return {key: token for key, token in named.items() if token}


def _set_ends(tokenizer: Any, config: Mapping[str, Any]) -> None:
    """Put ``<s>`` before a text (``add_bos_token``, true if absent) and ``</s>`` after it
    (``add_eos_token``, false if absent), as the checkpoint says."""
    from tokenizers.processors import TemplateProcessing

    before = [tokenizer.bos_token] if config.get("add_bos_token", True) else []
    after = [tokenizer.eos_token] if config.get("add_eos_token", False) else []
    second = [*(f"{token}:1" for token in before), "$B:1", *(f"{token}:1" for token in after)]
    backend = tokenizer.backend_tokenizer
    backend.post_processor = TemplateProcessing(
        single=[*before, "$A", *after],
        pair=[*before, "$A", *after, *second],
        special_tokens=[(token, backend.token_to_id(token)) for token in {*before, *after}],
    )


def _content(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else str(token)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), repr(error))


def _json(name_or_path: str | Path, name: str) -> dict[str, Any]:
    file = _file(name_or_path, name)
    return json.loads(file.read_text(encoding="utf-8")) if file else {}


def _file(name_or_path: str | Path, name: str) -> Path | None:
    """A file of a checkpoint, fetched if it is on a hub; None if it has none."""
    if Path(name_or_path).is_dir():
        file = Path(name_or_path) / name
        return file if file.exists() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return Path(hf_hub_download(str(name_or_path), name))
    except EntryNotFoundError:  # also if it is not in the cache and the hub cannot be reached
        return None
