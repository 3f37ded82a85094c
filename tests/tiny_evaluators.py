"""Tiny T5s and BERTs of random weights, made here with their tokenizers."""

from typing import Any

import torch
from tokenizers import normalizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertTokenizer,
    T5Config,
    T5ForSequenceClassification,
    T5Tokenizer,
)

from selfcorrect_rag.models import T5Evaluator

QUESTION = "Who wrote Emma?"
PASSAGES = ["Emma is a novel. " * n for n in (1, 9, 3, 25, 2)] + ["It was written by her.", "x"]


def t5_tokenizer() -> T5Tokenizer:
    """Letters, in a Unigram like the real one's: NFKC, special tokens among the pieces."""
    letters = [(c, -5.0) for c in "abcdefghijklmnopqrstuvwxyzEISPW0123456789[]</>_:?.!,"]
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *letters]
    words = [("▁is", -3.0), ("▁novel", -3.0)]
    tokenizer = T5Tokenizer(vocab=[*pieces, *words], extra_ids=2)
    tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()
    return tokenizer


def t5_config(**options: Any) -> T5Config:
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2}
    given = {"vocab_size": len(t5_tokenizer()), "decoder_start_token_id": 0, "num_labels": 1}
    return T5Config(**sizes | given | options)


def t5() -> T5ForSequenceClassification:
    torch.manual_seed(0)
    return T5ForSequenceClassification(t5_config()).eval()


def make(**options: Any) -> T5Evaluator:
    return T5Evaluator(t5(), t5_tokenizer(), **options)


def plain_score(question: str, passage: str) -> float:
    """One pair in one forward pass, as the official code has it."""
    text = f"{question} [SEP] {passage}"
    inputs = t5_tokenizer()(text, truncation=True, max_length=512, return_tensors="pt")
    with torch.inference_mode():
        return float(t5()(**inputs).logits.item())


def clamped(score: float) -> float:
    return min(max(score, -1.0), 1.0)


def bert_tokenizer() -> BertTokenizer:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "who", "is", "a", "novel", "emma", "?"]
    return BertTokenizer(vocab={word: i for i, word in enumerate(words)})


def bert() -> BertForSequenceClassification:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 32}
    given = {"vocab_size": 11, "num_labels": 1, "max_position_embeddings": 32}
    config = BertConfig(num_hidden_layers=1, initializer_range=0.3, **given, **sizes)
    return BertForSequenceClassification(config).eval()
