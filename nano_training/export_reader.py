"""Calibrate a trained reader and write it as it ships: ``python -m nano_training.export_reader``.

Calibration is fitted on half of the questions that are set aside, with five passages retrieved for
each: from the logits to the probability that a passage answers, and that a span is right.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from nano_training.evaluate_reader import (
    Pool,
    f1,
    for_calibration,
    graded,
    open_reader,
    with_gold,
    with_retrieved,
)
from nano_training.reader.rows import Row, real_rows
from selfcorrect_rag.evaluation.matching import contains_answer
from selfcorrect_rag.reader.reader import PassageReading, Reader
from selfcorrect_rag.reader.weights import ReaderCalibration, load_weights, save_weights
from selfcorrect_rag.thresholds import calibrate

THRESHOLDS = [step / 20 for step in range(2, 16)]
"""Confidences at which answers and mistakes are counted, to choose ``answer_above`` by."""
RIGHT = 0.6
"""F1 from which a span counts as right where the answer is a long one."""


def is_right(said: str, row: Row) -> bool:
    """Whether a span is the answer: it contains a short one, or shares most words of a long one."""
    short = [answer for answer in row.answers if len(answer.split()) <= 5]
    return contains_answer(said, short) or f1(said, row.answers) >= RIGHT


def fit(features: torch.Tensor, labels: torch.Tensor) -> list[float]:
    """Weights and offset of a logistic regression: features (rows, n), labels (rows,)."""
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


def calibrated(reader: Reader, rows: Sequence[Row]) -> ReaderCalibration:
    """Fit on the passages retrieved for each question, and on the one that answers it.

    ``reader`` has no calibration yet.
    """
    measured = with_retrieved(reader, rows, Pool(rows))
    read = [(m.row, r, s) for m in measured for r, s in zip(m.readings, m.states, strict=True)]
    read += [(m.row, m.readings[0], True) for m in with_gold(reader, rows)]
    read = [(row, reading, states) for row, reading, states in read if reading.spans]
    logits = torch.tensor([raw(reading) for _, reading, _ in read])
    states = torch.tensor([float(states) for _, _, states in read])
    right = torch.tensor([float(is_right(r.spans[0].text, row)) for row, r, _ in read])
    slope, offset = fit(logits[:, :1], states)
    one, two, three = fit(logits, right)
    answered = []
    for m in measured:
        marks = [(raw(r), is_right(r.spans[0].text, m.row)) for r in m.readings if r.spans]
        answered.append(
            max((_probability(one * a + two * b + three), right) for (a, b), right in marks)
        )
    for threshold in THRESHOLDS:
        stated = [is_it for confidence, is_it in answered if confidence > threshold]
        print(
            f"above {threshold:.2f}: {sum(stated) / len(measured):.3f} right, "
            f"{(len(stated) - sum(stated)) / len(measured):.3f} wrong of all"
        )
    graded_rows = [
        row._replace(scores=[_recalibrated(score, slope, offset) for score in row.scores])
        for row in graded(measured)
    ]
    found = calibrate(graded_rows).thresholds
    thresholds = (round(found.upper, 3), round(found.lower, 3))
    return ReaderCalibration((slope, offset), (one, two, three), thresholds)


def _recalibrated(grade: float, slope: float, offset: float) -> float:
    logit = float(torch.logit(torch.tensor((grade + 1) / 2).clamp(1e-7, 1 - 1e-7)))
    return 2 * _probability(slope * logit + offset) - 1


def _probability(logit: float) -> float:
    return float(torch.sigmoid(torch.tensor(logit)))


def raw(reading: PassageReading) -> tuple[float, float]:
    """The logit of relevance and the best span's log-probability, before calibration."""
    relevant = torch.tensor(reading.relevant).clamp(1e-7, 1 - 1e-7)
    return float(torch.logit(relevant)), float(torch.tensor(reading.spans[0].probability).log())


def main() -> None:
    """Export, load what was written, calibrate it, and write it with its calibration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("build/reader/checkpoint.pt"))
    parser.add_argument("--out", type=Path, default=Path("build/reader/weights"))
    parser.add_argument("--most", type=int, default=500, help="Most questions to fit on.")
    args = parser.parse_args()
    save_weights(open_reader(args.checkpoint).network, ReaderCalibration(), args.out)
    network, _ = load_weights(args.out)  # as it ships, in eight bits
    rows = for_calibration(real_rows().held_out)
    random.Random(0).shuffle(rows)
    calibration = calibrated(Reader(network), rows[: args.most])
    save_weights(network, calibration, args.out)
    print(f"{len(rows[: args.most])} questions: {calibration}")


if __name__ == "__main__":
    main()
