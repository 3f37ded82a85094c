"""Calibrate a trained reader and write it as it ships: ``python -m reader_training.export``.

Calibration is fitted on half of the questions that are set aside, with five passages retrieved for
each: from the logits to the probability that a passage answers, that a span is right, and that the
sentence around it holds the answer.
"""

import argparse
import json
import math
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn.functional import binary_cross_entropy_with_logits

from reader_training.evaluate import (
    Measured,
    best,
    f1,
    find_answers,
    for_calibration,
    held_out_rows,
    judge_grades,
    pool,
    read_gold,
    read_retrieved,
)
from reader_training.onnx_graph import write_network
from reader_training.rows import Row
from reader_training.torch_network import ReaderNetwork
from selfcorrect_rag.evaluation.metrics import contains_answer
from selfcorrect_rag.reader.network import SHIPPED, TOKENIZER, WORDS
from selfcorrect_rag.reader.reader import CONFIG, PassageReading, Reader, ReaderCalibration, Span
from selfcorrect_rag.thresholds import calibrate

THRESHOLDS = [step / 20 for step in range(2, 16)]
"""Confidences at which answers and mistakes are counted, to choose ``answer_above`` by."""
UNLABELLED = ("policyqa", "selqa", "covidqa")
"""Sets without calibration: other passages answer their questions in other words, so that it is not
known which of the retrieved ones do."""
RIGHT = 0.6
"""F1 from which a span counts as right where the answer is a long one."""


def is_right(said: str, row: Row) -> bool:
    """Return whether a span contains a short answer, or shares most words of a long one."""
    short = [answer for answer in row.answers if len(answer.split()) <= 5]
    return contains_answer(said, short) or f1(said, row.answers) >= RIGHT


def fit(features: torch.Tensor, labels: torch.Tensor) -> list[float]:
    """Return weights and offset of a logistic regression: features (rows, n), labels (rows,)."""
    weights = torch.zeros(features.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        value = binary_cross_entropy_with_logits(features @ weights[:-1] + weights[-1], labels)
        value = value + 1e-4 * weights[:-1].square().sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    return [round(float(weight), 4) for weight in weights.detach()]


def fit_calibration(reader: Reader, rows: Sequence[Row]) -> ReaderCalibration:
    """Fit on the passages retrieved for each question, and on the one that answers it.

    ``reader`` has no calibration yet.
    """
    measured = read_retrieved(reader, rows, pool(rows))
    logits, states, right, held = [], [], [], []
    for m in [*measured, *read_gold(reader, rows)]:
        for reading, passage, state in zip(m.readings, m.passages, m.states, strict=True):
            for span in reading.spans[:1]:
                sentence = passage.text[slice(*span.sentence)]
                is_in = is_right(span.text, m.row) or contains_answer(sentence, m.row.answers)
                logits.append((_logit(reading.relevant), *recover_logits(span)))
                states.append(float(state))
                right.append(float(is_right(span.text, m.row)))
                held.append(float(is_in))
    features = torch.tensor(logits)
    relevant: Any = fit(features[:, :1], torch.tensor(states))
    answer: Any = fit(features[:, [1, 2]], torch.tensor(right))
    whole: Any = fit(features[:, [1, 3]], torch.tensor(held))
    calibration = ReaderCalibration(tuple(relevant), tuple(answer), tuple(whole))
    known = [
        m._replace(readings=[_recalibrate(r, calibration) for r in m.readings]) for m in measured
    ]
    report(known)
    found = calibrate(judge_grades(known)).thresholds
    return calibration._replace(thresholds=(round(found.upper, 3), round(found.lower, 3)))


def report(measured: Sequence[Measured]) -> None:
    """Print how many answers are right and wrong above each threshold."""
    for threshold in THRESHOLDS:
        said = [(m.row, best(find_answers(m, threshold))) for m in measured]
        told = [is_right(a.text, row) for row, a in said if a.confidence > threshold]
        right, wrong = sum(told) / len(said), (len(told) - sum(told)) / len(said)
        print(f"above {threshold:.2f}: {right:.3f} right, {wrong:.3f} wrong of all")


def _recalibrate(reading: PassageReading, calibration: ReaderCalibration) -> PassageReading:
    """Return a reading without calibration, with it; of its spans only the first one."""
    spans = list(reading.spans)
    for span in spans[:1]:
        logit, of_span, of_sentence = recover_logits(span)
        spans[0] = span._replace(
            confidence=_probability(calibration.answer, logit, of_span),
            sentence_confidence=_probability(calibration.sentence, logit, of_sentence),
        )
    probability = _probability(calibration.relevant, _logit(reading.relevant))
    return reading._replace(relevant=probability, spans=tuple(spans))


def _probability(weights: Sequence[float], *features: float) -> float:
    logit = sum(a * b for a, b in zip((*features, 1.0), weights, strict=True))
    return 1 / (1 + math.exp(-logit))


def recover_logits(span: Span) -> tuple[float, float, float]:
    """Return what an uncalibrated reader made a span's confidences of: the logit that its window
    answers, and the log-probabilities of the span and of the sentence around it.

    Another window of the passage may be more relevant than the one with the best span.
    """
    probability = math.log(span.probability)
    relevant = _logit(span.confidence) - probability
    return relevant, probability, _logit(span.sentence_confidence) - relevant


def _logit(probability: float) -> float:
    clamped = min(max(probability, 1e-12), 1 - 1e-12)
    return math.log(clamped / (1 - clamped))


def write_reader(network: ReaderNetwork, calibration: ReaderCalibration, folder: Path) -> None:
    """Write a reader's folder: network, calibration, tokenizer, and the word embeddings, which
    training does not change."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (WORDS, TOKENIZER):
        shutil.copy(SHIPPED / name, folder)
    write_network(network, folder)
    write_calibration(calibration, folder)


def write_calibration(calibration: ReaderCalibration, folder: Path) -> None:
    """Write reader.json."""
    config = {"calibration": calibration._asdict()}
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Export, load what was written, calibrate it, and write its calibration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trained", type=Path, default=Path("build/reader/trained"))
    parser.add_argument("--out", type=Path, default=Path("build/reader/weights"))
    parser.add_argument("--most", type=int, default=500, help="Most questions to fit on.")
    args = parser.parse_args()
    network = ReaderNetwork()
    network.load_state_dict(load_file(args.trained / "model.safetensors"))
    write_reader(network, ReaderCalibration(), args.out)
    rows = [row for row in for_calibration(held_out_rows()) if row.source not in UNLABELLED]
    random.Random(0).shuffle(rows)
    calibration = fit_calibration(Reader.load(args.out), rows[: args.most])
    write_calibration(calibration, args.out)
    print(f"{len(rows[: args.most])} questions: {calibration}")


if __name__ == "__main__":
    main()
