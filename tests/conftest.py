"""Tiny models and tokenizers made here: no downloads, no network."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# Read when transformers is imported: a name that is no folder is not looked for on a hub, which
# takes the better part of a minute to fail where there is no network.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Read when Ray is imported, as a test may before the command does that sets it.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.models.t5 import T5Config, T5ForSequenceClassification, T5Tokenizer

from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.models.checkpoints import load_tokenizer
from selfcorrect_rag.reflection import CONTROL_TOKENS

with suppress(ImportError):  # vLLM's environment goes without
    from hypothesis import HealthCheck, settings

    if settings.get_current_profile_name() == "default":
        # The same examples in each run, and no clock, which a busy machine would not hold.
        slow = [HealthCheck.too_slow]
        settings.register_profile(
            "even", derandomize=True, deadline=None, suppress_health_check=slow
        )
        settings.load_profile("even")

SPECIAL = ["<pad>", "<s>", "</s>", *CONTROL_TOKENS]
MERGES = [("t", "h"), ("th", "e"), ("i", "n"), ("Ġ", "the"), ("[", "R"), ("e", "l"), ("o", "r")]


def byte_level_tokenizer(
    special: Sequence[str] = SPECIAL, merges: Any = MERGES, pad: str = "<pad>"
) -> PreTrainedTokenizerFast:
    """GPT-2 style: bytes, with a few merges so that borders matter."""
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    for left, right in merges:
        vocabulary.setdefault(left + right, len(vocabulary))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[*merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    begin = [("<s>", tokenizer.token_to_id("<s>"))]
    tokenizer.post_processor = TemplateProcessing("<s> $A", "<s> $A $B", begin)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token=pad
    )


@pytest.fixture(params=["llama", "mistral", "first", "bytes"])
def tokenizer(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """With every way to put a space before a text."""
    from tests.test_checkpoint_tokenizers import STYLES, checkpoint_folder

    if request.param in STYLES:
        return load_tokenizer(checkpoint_folder(tmp_path, request.param, "slow", legacy=True))
    if request.param == "first":
        folder = checkpoint_folder(tmp_path, "llama", "slow", legacy=False)
        return AutoTokenizer.from_pretrained(folder)
    return byte_level_tokenizer()


def random_model(vocabulary: int, context: int = 512) -> LlamaForCausalLM:
    """A Llama of random weights, large enough to have opinions."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "num_key_value_heads": 2}
    given: Any = {"vocab_size": vocabulary, "max_position_embeddings": context}
    given |= {"initializer_range": 0.4, "bos_token_id": None, "eos_token_id": None}
    return LlamaForCausalLM(LlamaConfig(**sizes, **given))


def talkative(bias: float = 3.0) -> TransformersReflectionLLM:
    """A random model that often emits reflection tokens, of every group."""
    tokenizer = byte_level_tokenizer()
    model = random_model(len(tokenizer))
    with torch.no_grad():
        ids = [tokenizer.convert_tokens_to_ids(token) for token in (*CONTROL_TOKENS, "</s>")]
        model.lm_head.weight[ids] *= bias
    return TransformersReflectionLLM.from_model(model, tokenizer)


def t5_tokenizer() -> T5Tokenizer:
    """Letters, in a Unigram like the real one's: NFKC, special tokens among the pieces."""
    letters = [(c, -5.0) for c in "abcdefghijklmnopqrstuvwxyzEISPW0123456789[]</>_:?.!,"]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *letters]
    words = [("▁is", -3.0), ("▁novel", -3.0)]
    tokenizer = T5Tokenizer(vocab=[*pieces, *words], extra_ids=2)
    tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
    return tokenizer


def t5(**options: Any) -> T5ForSequenceClassification:
    torch.manual_seed(0)
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    given = {"vocab_size": len(t5_tokenizer()), "decoder_start_token_id": 0, "num_labels": 1}
    return T5ForSequenceClassification(T5Config(**sizes | given | options)).eval()


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model of :func:`talkative`, which writes text too, and its tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoint")
    with talkative(1.8) as llm:
        model, words = llm._model, byte_level_tokenizer()
        model.config.eos_token_id = model.generation_config.eos_token_id = words.eos_token_id
        model.save_pretrained(folder)
        words.save_pretrained(folder)
    return folder
