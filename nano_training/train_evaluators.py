"""Trains the shipped evaluators by the entrypoint that fine-tunes any other.

    python -m nano_training.train_evaluators cross-encoder --data DIR --out DIR
    python -m nano_training.train_evaluators t5 --out DIR

Both go on after a kill. The T5 learns from made-up questions alone; the cross-encoder's real ones
lie in the folder ``--data``.
"""

import argparse
import json
import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import T5ForSequenceClassification

from nano_training import evaluator_data
from nano_training.optimizer import precision
from nano_training.t5_pretraining import Pretraining, PretrainingSettings
from selfcorrect_rag.nano import generator_path
from selfcorrect_rag.nano.loaders import cross_encoder_base
from selfcorrect_rag.training.evaluator import (
    EvaluatorSettings,
    GradedRow,
    read_graded,
    train_evaluator,
)

CROSS_ENCODER = EvaluatorSettings(
    model="all-MiniLM-L6-v2",
    num_train_epochs=1.5,
    learning_rate=5e-4,
    batch_size=16,
    hard_negatives=2,
    max_length=192,
    lora_rank=32,
    precision=precision(),
)


def train_cross_encoder(data: Path, out: Path) -> None:
    """Real questions, what lies closer to the border, and some made-up ones."""
    chance = random.Random("cross-encoder")
    rows = [
        *evaluator_data.popqa(data),
        *evaluator_data.nq_open(data),
        *evaluator_data.hotpotqa(data),
        *evaluator_data.musique(data),
        *chance.sample(evaluator_data.pubmedqa(data), 400),
        *evaluator_data.harder(data, "cross-encoder"),
        *evaluator_data.world_rows(700, "cross-encoder"),
    ]
    corpus = [*evaluator_data.popqa_corpus(data), *evaluator_data.corpus_2wiki(data)]
    corpus += [passage for row in evaluator_data.nq_open(data) for passage in row.positives]
    rows = _one_row_a_question(rows, out / "evaluator_data.jsonl")
    train_evaluator(rows, out, CROSS_ENCODER, corpus=corpus, base=cross_encoder_base())
    _shrink(out / "adapter" / "adapter_model.safetensors")
    shutil.copy(out / "evaluator" / "config.json", out / "adapter")


T5 = EvaluatorSettings(
    model="nano T5",
    num_train_epochs=1.0,
    learning_rate=3e-4,
    batch_size=32,
    hard_negatives=0,
    max_length=256,
    precision=precision(),
)


def train_t5(out: Path) -> None:
    """From random weights: first to read, then to grade."""
    pretraining = Pretraining(PretrainingSettings(), out, generator_path())
    for step, error, hints in pretraining.run():
        if step % 50 == 0:
            print(f"step {step}: error {error:.3f}, hints {hints:.3f}", flush=True)
    base = pretraining.model, pretraining.tokenizer
    train_evaluator(evaluator_data.world_rows(4000, "t5"), out, T5, base=base)
    model = T5ForSequenceClassification.from_pretrained(out / "evaluator")
    model.half().save_pretrained(out / "evaluator")  # type: ignore[no-untyped-call]


def _one_row_a_question(rows: Iterable[GradedRow], file: Path) -> list[GradedRow]:
    """Rows by way of the file that the command would read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row.__dict__, ensure_ascii=False) + "\n")
    return read_graded(file)


def _shrink(weights: Path) -> None:
    """Store matrices as 8-bit floats and the rest in half precision; peft loads them as float32."""
    tensors = {
        name: tensor.to(torch.float8_e4m3fn if tensor.ndim == 2 else torch.float16)
        for name, tensor in load_file(weights).items()
    }
    save_file(tensors, weights, {"format": "pt"})


def main() -> None:
    """Train one of the two."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["cross-encoder", "t5"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    if args.kind == "t5":
        train_t5(args.out)
    elif args.data is None:
        parser.error("the cross-encoder learns from real text: --data DIR")
    else:
        train_cross_encoder(args.data, args.out)


if __name__ == "__main__":
    main()
