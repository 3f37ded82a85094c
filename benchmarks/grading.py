"""How fast an evaluator grades, against the papers' loop on the same weights.

    python -m benchmarks.grading [--questions N] [--large]

A T5 of random weights, in the dimensions of t5-small or t5-large, scores ten PopQA paragraphs a
question (../shared/data/popqa_dev_741.jsonl). Ends in one line of JSON:

official_pairs_per_s    one pair at a time, padded to 512 tokens, float32, as the official code does
float32_pairs_per_s     T5Evaluator, one question after another; the default on a CPU
bfloat16_pairs_per_s    the same in bfloat16; the default on CUDA
concurrent_pairs_per_s  T5Evaluator, all questions at once from 16 threads, in the default dtype
*_difference            largest difference to the official score
"""

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import T5Config, T5ForSequenceClassification, T5Tokenizer

from selfcorrect_rag.models import T5Evaluator

DATA = Path(__file__).parents[2] / "shared" / "data"
SMALL = {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8}
LARGE = {"d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_layers": 24, "num_heads": 16}
PASSAGES = 10

Question = tuple[str, list[str]]
"""A question and its passages."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--questions", type=int, default=20, help=f"each with {PASSAGES} passages")
    parser.add_argument("--large", action="store_true", help="t5-large, for a GPU")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    file = DATA / "popqa_dev_741.jsonl"
    if not file.exists():
        print(f"skipped: {file} is not there")
        return
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    texts = [" ".join(p["text"].split()) for row in rows for p in row["paragraphs"]]
    # Each row has two paragraphs; those of the next rows stand in for worse retrieval results.
    questions = [
        (row["question"], texts[2 * i : 2 * i + PASSAGES])
        for i, row in enumerate(rows[: args.questions])
    ]
    tokenizer = trained_tokenizer(texts)
    model = random_model(LARGE if args.large else SMALL, len(tokenizer)).to(args.device)
    report: dict[str, Any] = {
        "benchmark": "grading",
        "model": "t5-large" if args.large else "t5-small",
        "device": torch.cuda.get_device_name() if "cuda" in args.device else args.device,
        "threads": torch.get_num_threads(),
        "pairs": sum(len(passages) for _, passages in questions),
    }
    official = measured(report, "official_", questions, partial(official_score, model, tokenizer))
    default = torch.float32 if args.device == "cpu" else torch.bfloat16
    for dtype in (torch.float32, torch.bfloat16):
        name = str(dtype).removeprefix("torch.")
        evaluator = T5Evaluator(model.to(dtype), tokenizer)
        scores = measured(report, f"{name}_", questions, evaluator.score)
        apart = max(abs(a - b) for a, b in zip(scores, official, strict=True))
        report[f"{name}_difference"] = round(apart, 6)
        if dtype is default:
            started = time.perf_counter()
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda asked, by=evaluator: by.score(*asked), questions))
            seconds = time.perf_counter() - started
            report["concurrent_pairs_per_s"] = round(report["pairs"] / seconds, 2)
    print(json.dumps(report))


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
    report[f"{name}pairs_per_s"] = round(len(scores) / (time.perf_counter() - started), 2)
    return scores


if __name__ == "__main__":
    main()
