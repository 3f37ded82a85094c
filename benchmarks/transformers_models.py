"""The nano generator made larger for the transformers benchmark: the same answers, more work."""

import tempfile
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.vllm_models import grown
from nano_training.tokenizer import load_tokenizer
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.nano import generator_path, load_generator

HIDDEN, HEADS, INTERMEDIATE, LAYERS = 768, 24, 2048, 6


def nano(endless: bool) -> TransformersReflectionLLM:
    """The nano generator; an ``endless`` one asks for more evidence wherever it would end."""
    if not endless:
        return load_generator(device="cpu")
    with tempfile.TemporaryDirectory() as folder:
        return TransformersReflectionLLM.from_pretrained(
            grown(Path(folder), endless=True), device="cpu"
        )


def widened(endless: bool) -> TransformersReflectionLLM:
    """A Llama of 92 M parameters and 32,016 ids that writes what the nano generator writes.

    Where the nano generator has no weights, random ones compute what nothing reads: what attention
    and feed-forward layers add there is zero, so that all of the width beyond is.
    """
    with tempfile.TemporaryDirectory() as folder:
        small = LlamaForCausalLM.from_pretrained(
            grown(Path(folder), endless=endless), dtype=torch.float32
        )
    config = LlamaConfig(**small.config.to_dict())
    ratio = HIDDEN / config.hidden_size
    config.hidden_size, config.intermediate_size = HIDDEN, INTERMEDIATE
    config.num_attention_heads = config.num_key_value_heads = HEADS
    config.num_hidden_layers = LAYERS
    config.rms_norm_eps /= ratio  # of a mean square that zeros make smaller
    torch.manual_seed(0)
    model = LlamaForCausalLM(config)
    added = ("embed_tokens", "o_proj", "down_proj")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if any(part in name for part in added):
                weight.zero_()
        for name, weight in small.named_parameters():
            corner = model.get_parameter(name)[tuple(slice(size) for size in weight.shape)]
            corner.copy_(weight / ratio**0.5 if "norm" in name else weight)
    tokenizer = load_tokenizer(generator_path())
    return TransformersReflectionLLM.from_model(model, tokenizer)
