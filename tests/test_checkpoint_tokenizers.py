"""Checkpoints' tokenizers: the ids of transformers 4.36.2, which the official inference ran with.

``tests/tokenizers/make.py`` wrote the ids, and says how.
"""

import json
import shutil
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from selfcorrect_rag.models.checkpoints import load_tokenizer, save_tokenizer
from selfcorrect_rag.models.engines.tokens import ControlledTokenizer
from selfcorrect_rag.prompts import Part, Prompt

MADE = Path(__file__).parent / "tokenizers"
TEXTS = [json.loads(line) for line in (MADE / "ids.jsonl").open(encoding="utf-8")]
STYLES, LAYOUTS = ("llama", "mistral"), ("slow", "older", "fast")


def prompt(parts: Sequence[str]) -> Prompt:
    kinds = ("untrusted", "control")
    return Prompt(parts=tuple(Part(text, kinds[i % 2]) for i, text in enumerate(parts)))  # type: ignore[arg-type]


def checkpoint_folder(folder: Path, style: str, layout: str, **options: Any) -> Path:
    """A folder as a training script leaves it, without weights; ``...`` leaves an option out."""
    made = folder / f"{style}-{layout}-{options}"
    shutil.copytree(MADE / style / layout, made)
    config = json.loads((made / "tokenizer_config.json").read_text()) | options
    config = {key: value for key, value in config.items() if value is not ...}
    (made / "tokenizer_config.json").write_text(json.dumps(config))
    (made / "config.json").write_text(json.dumps({"model_type": style}))
    return made


@pytest.mark.parametrize("legacy", [True, False, ...])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("style", STYLES)
def test_ids_are_the_official_ones(tmp_path: Path, style: str, layout: str, legacy: Any) -> None:
    # A folder that names no class is read as its model is.
    options = {"tokenizer_class": ...} if legacy is ... else {}
    loaded = load_tokenizer(checkpoint_folder(tmp_path, style, layout, legacy=legacy, **options))
    encoded = ControlledTokenizer(loaded).encode([prompt(text["parts"]) for text in TEXTS])
    for text, given in zip(TEXTS, encoded, strict=True):
        assert given.ids == text[style], "".join(text["parts"])
    assert (loaded.eos_token, loaded.pad_token) == ("</s>", "<pad>")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_saved_checkpoint_gives_the_same_ids_to_everyone(tmp_path: Path, layout: str) -> None:
    """To this package, and to what loads it by transformers alone, as vLLM does."""
    folder = checkpoint_folder(tmp_path, "llama", layout, legacy=...)
    saved = tmp_path / "saved"
    saved.mkdir()
    (saved / "config.json").write_text((folder / "config.json").read_text())
    save_tokenizer(load_tokenizer(folder), saved)
    for loaded in (load_tokenizer(saved), AutoTokenizer.from_pretrained(saved)):
        for text in TEXTS:
            assert loaded("".join(text["parts"]))["input_ids"] == text["llama"]


def test_begin_and_end_tokens_are_those_that_the_checkpoint_says(tmp_path: Path) -> None:
    for layout, option in product(LAYOUTS, ({"add_bos_token": False}, {"add_eos_token": True})):
        loaded = load_tokenizer(checkpoint_folder(tmp_path, "llama", layout, **option))
        ids = loaded("Emma")["input_ids"]
        assert (ids[0] == 1, ids[-1] == 2) == ("add_eos_token" in option,) * 2
        (encoded,) = ControlledTokenizer(loaded).encode([prompt(["Emma"])])
        assert encoded.ids == [i for i in ids if i != 2], "a prompt is to be continued"
