"""Measure how fast an evaluator grades, against the papers' loop on the same weights.

A T5 of random weights, in the dimensions of t5-small, scores ten PopQA paragraphs a question
(../shared/data/popqa_dev_741.jsonl) on a CPU: ``python -m benchmarks.grading [--questions N]``;
benchmarks/gpu.py does it on a GPU. All take turns at each question; pairs a second of CPU time, in
one line of JSON:

official              one pair at a time, padded to 512 tokens, float32, as the official code does
float32, bfloat16     T5Evaluator, one question after another; a CPU's default is float32
*_over_official       how many times as fast as the official loop
*_difference          largest difference to the official score
"""

import argparse
import json
import time
from collections import defaultdict
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import T5Config, T5ForSequenceClassification, T5Tokenizer

from reader_training.rows import DATA, lines
from selfcorrect_rag.models import T5Evaluator

SMALL = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
LARGE = {"d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_layers": 24, "num_heads": 16}
PASSAGES = 10


def trained_tokenizer(texts: list[str]) -> T5Tokenizer:
    """Train T5's kind of tokenizer, which cuts these texts about as finely as T5's own."""
    unigram, split = Tokenizer(models.Unigram()), pre_tokenizers.WhitespaceSplit()
    unigram.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.Metaspace()])
    special: dict[str, Any] = {"special_tokens": ["<pad>", "</s>", "<unk>"], "unk_token": "<unk>"}
    trainer = trainers.UnigramTrainer(vocab_size=8000, show_progress=False, **special)
    unigram.train_from_iterator(texts, trainer)
    return T5Tokenizer(vocab=[*map(tuple, json.loads(unigram.to_str())["model"]["vocab"])])


def random_model(size: dict[str, Any], vocabulary: int) -> T5ForSequenceClassification:
    """Make an evaluator of these dimensions with random weights."""
    torch.manual_seed(0)
    heads = {"vocab_size": vocabulary, "decoder_start_token_id": 0, "num_labels": 1}
    model: Any = T5ForSequenceClassification(T5Config(**{**size, **heads}))
    return model.eval()  # type: ignore[no-any-return]


def official_score(model: Any, tokenizer: Any, question: str, passages: list[str]) -> list[float]:
    """Score pairs as the loop of the official code does."""
    options: Any = {"return_tensors": "pt", "padding": "max_length", "truncation": True}
    scores = []
    for passage in passages:
        pair = tokenizer(f"{question} [SEP] {passage}", max_length=512, **options).to(model.device)
        with torch.no_grad():
            logits = model(pair["input_ids"], attention_mask=pair["attention_mask"]).logits
        scores.append(min(max(float(logits.cpu()), -1.0), 1.0))
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=20, help=f"each with {PASSAGES} passages")
    rows = list(lines(DATA / "popqa_dev_741.jsonl"))
    texts = [" ".join(p["text"].split()) for row in rows for p in row["paragraphs"]]
    tokenizer = trained_tokenizer(texts)
    model = random_model(SMALL, len(tokenizer))
    ways: dict[str, Any] = {"official": partial(official_score, model, tokenizer)}
    for name in ("float32", "bfloat16"):
        ways[name] = T5Evaluator(deepcopy(model).to(getattr(torch, name)), tokenizer).score
    scores, seconds = defaultdict[str, list[float]](list), defaultdict[str, float](float)
    # Each row has two paragraphs; those of the next rows stand in for worse retrieval results.
    for i, row in enumerate(rows[: parser.parse_args().questions + 1]):
        for name, score in ways.items():
            started = time.process_time()
            scores[name] += score(row["question"], texts[2 * i : 2 * i + PASSAGES])
            seconds[name] += (time.process_time() - started) * (i > 0)  # the first warms up
    pairs = len(scores["official"]) - PASSAGES
    report: dict[str, Any] = {"benchmark": "grading", "threads": torch.get_num_threads()}
    for name in ways:
        apart = max(abs(a - b) for a, b in zip(scores[name], scores["official"], strict=True))
        report[name] = round(pairs / seconds[name], 2)
        report[f"{name}_over_official"] = round(seconds["official"] / seconds[name], 2)
        report[f"{name}_difference"] = round(apart, 6)
    print(json.dumps({**report, "pairs": pairs}))


if __name__ == "__main__":
    main()
