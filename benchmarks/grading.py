"""How fast an evaluator grades, against the papers' loop on the same weights.

A T5 of random weights, in the dimensions of t5-small, scores ten PopQA paragraphs a question
(../shared/data/popqa_dev_741.jsonl) on a CPU: ``python -m benchmarks.grading [--questions N]``;
benchmarks/gpu.py does it on a GPU. Ends in one line of JSON:

official_pairs_per_s   one pair at a time, padded to 512 tokens, float32, as the official code does
float32_pairs_per_s    T5Evaluator, one question after another; the default on a CPU
bfloat16_pairs_per_s   the same in bfloat16
*_difference           largest difference to the official score
"""

import argparse
import json
import time
from collections.abc import Callable
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

Question = tuple[str, list[str]]
"""A question and its passages."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=20, help=f"each with {PASSAGES} passages")
    count = parser.parse_args().questions
    file = DATA / "popqa_dev_741.jsonl"
    if not file.exists():
        print(f"skipped: {file} is not there")
        return
    rows = list(lines(file))
    texts = [" ".join(p["text"].split()) for row in rows for p in row["paragraphs"]]
    # Each row has two paragraphs; those of the next rows stand in for worse retrieval results.
    questions = [
        (row["question"], texts[2 * i : 2 * i + PASSAGES]) for i, row in enumerate(rows[:count])
    ]
    tokenizer = trained_tokenizer(texts)
    model = random_model(SMALL, len(tokenizer))
    report: dict[str, Any] = {"benchmark": "grading", "threads": torch.get_num_threads()}
    official = measured(report, "official", questions, partial(official_score, model, tokenizer))
    for name in ("float32", "bfloat16"):
        evaluator = T5Evaluator(model.to(getattr(torch, name)), tokenizer)
        scores = measured(report, name, questions, evaluator.score)
        apart = max(abs(a - b) for a, b in zip(scores, official, strict=True))
        report[f"{name}_difference"] = round(apart, 6)
    print(json.dumps({**report, "pairs": len(official)}))


def trained_tokenizer(texts: list[str]) -> T5Tokenizer:
    """T5's kind of tokenizer, of a size that cuts these texts about as finely as T5's own."""
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=8000, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    unigram.train_from_iterator(texts, trainer)
    pieces = json.loads(unigram.to_str())["model"]["vocab"]
    return T5Tokenizer(vocab=[(piece, score) for piece, score in pieces])


def random_model(size: dict[str, Any], vocabulary: int) -> T5ForSequenceClassification:
    torch.manual_seed(0)
    heads = {"vocab_size": vocabulary, "decoder_start_token_id": 0, "num_labels": 1}
    model = T5ForSequenceClassification(T5Config(**{**size, **heads}))
    return model.eval()  # type: ignore[no-any-return, no-untyped-call]


def official_score(
    model: T5ForSequenceClassification, tokenizer: T5Tokenizer, question: str, passages: list[str]
) -> list[float]:
    """The scoring loop of the official code."""
    scores = []
    for passage in passages:
        inputs = tokenizer(
            f"{question} [SEP] {passage}",
            return_tensors="pt",
            padding="max_length",
            max_length=512,
            truncation=True,
        ).to(model.device)
        with torch.no_grad():
            outputs = model(inputs["input_ids"], attention_mask=inputs["attention_mask"])
        scores.append(min(max(float(outputs.logits.cpu()), -1.0), 1.0))
    return scores


def measured(
    report: dict[str, Any],
    name: str,
    questions: list[Question],
    score: Callable[[str, list[str]], list[float]],
) -> list[float]:
    """Scores of all pairs, question by question, with their speed in the report."""
    score(*questions[0])  # the first call pays for what is loaded late
    started = time.perf_counter()
    scores = [s for question, passages in questions for s in score(question, passages)]
    report[f"{name}_pairs_per_s"] = round(len(scores) / (time.perf_counter() - started), 2)
    return scores


if __name__ == "__main__":
    main()
