"""Trains the nano T5 by the entrypoint that fine-tunes any other evaluator.

    python -m nano_training.train_evaluator --out DIR

It learns from made-up questions, and goes on after a kill.
"""

import argparse
from pathlib import Path

from transformers import T5ForSequenceClassification

from nano_training import evaluator_data
from nano_training.optimizer import precision
from nano_training.t5_pretraining import Pretraining, PretrainingSettings
from selfcorrect_rag.nano import generator_path
from selfcorrect_rag.training.evaluator import EvaluatorSettings, train_evaluator

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


def main() -> None:
    """Train it into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    train_t5(parser.parse_args().out)


if __name__ == "__main__":
    main()
