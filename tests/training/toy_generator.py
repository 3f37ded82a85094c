"""Generators of random weights that have never seen a control token, and rows for them."""

from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from selfcorrect_rag.training.generator_rows import GeneratorRow


def plain_tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, a beginning and an end, which is padding too: nothing else."""
    letters = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=letters, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in ("<s>", "</s>")]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )


def toy(*, tied: bool = False, spare: int = 0, bias: bool = False) -> tuple[Any, Any]:
    """A Llama and its tokenizer, the same each time; ``spare`` rows are beyond the vocabulary."""
    words = plain_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(words) + spare,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.1,
        tie_word_embeddings=tied,
        attention_bias=bias,
        bos_token_id=words.bos_token_id,
        eos_token_id=words.eos_token_id,
    )
    return LlamaForCausalLM(config), words


def rows(number: int) -> list[GeneratorRow]:
    """Whether to retrieve, and what to think of a passage, can be seen from a letter."""
    made = []
    for i in range(number):
        if i % 3:
            good = i % 2
            critique = "[Relevant]yes[Fully supported]" if good else "[Irrelevant]no"
            passage = f"<paragraph>{'p' if good else 'q'} {i}</paragraph>"
            output = f"[Retrieval]{passage}{critique}[Utility:{5 if good else 2}]"
        else:
            output = "[No Retrieval]hm[Utility:3]"
        made.append(GeneratorRow(f"{'Who' if i % 3 else 'Do'} {i}?", output))
    return made
