"""Calibrate a trained reader and write it as it ships: ``python -m nano_training.export_reader``.

Calibration is fitted on half of the questions that are set aside, with five passages retrieved for
each: from the logits to the probability that a passage answers, and that a span is right.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from nano_training.evaluate_reader import (
    PASSAGES,
    Pool,
    f1,
    for_calibration,
    graded,
    open_reader,
    with_retrieved,
)
from nano_training.reader.rows import Row, real_rows
from selfcorrect_rag.evaluation.matching import contains_answer
from selfcorrect_rag.reader.reader import Passage, PassageReading, Reader
from selfcorrect_rag.reader.weights import ReaderCalibration, load_weights, save_weights
from selfcorrect_rag.thresholds import calibrate

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
    """Fit on the passages retrieved for each question, and on the one that answers it."""
    pool = Pool(rows)
    found = pool.retrieve([row.question for row in rows])
    asked: list[tuple[Row, Passage]] = []
    for row, some in zip(rows, found, strict=True):
        gold = Passage(row.title, row.passage)
        asked += [(row, passage) for passage in dict.fromkeys([*some[:PASSAGES], gold])]
    read = reader.read([(row.question, passage) for row, passage in asked])
    relevant, answer, states, right = [], [], [], []
    for (row, passage), reading in zip(asked, read, strict=True):
        if not reading.spans:
            continue
        logit, logprob = raw(reading)
        relevant.append([logit])
        answer.append([logit, logprob])
        states.append(
            float(passage.text == row.passage or contains_answer(passage.text, row.answers))
        )
        right.append(float(is_right(reading.spans[0].text, row)))
    one = fit(torch.tensor(relevant), torch.tensor(states))
    two = fit(torch.tensor(answer), torch.tensor(right))
    made = ReaderCalibration((one[0], one[1]), (two[0], two[1], two[2]))
    measured = with_retrieved(Reader(reader.network, made), rows, pool)
    thresholds = calibrate(graded(measured)).thresholds
    return made._replace(thresholds=(round(thresholds.upper, 3), round(thresholds.lower, 3)))


def raw(reading: PassageReading) -> tuple[float, float]:
    """The logit of relevance and the best span's log-probability, before calibration."""
    relevant = torch.tensor(reading.relevant).clamp(1e-7, 1 - 1e-7)
    return float(torch.logit(relevant)), float(torch.tensor(reading.spans[0].probability).log())


def main() -> None:
    """Export, load what was written, calibrate it, and write it with its calibration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("build/reader/checkpoint.pt"))
    parser.add_argument("--out", type=Path, default=Path("build/reader/weights"))
    parser.add_argument("--most", type=int, default=1000, help="Most questions to fit on.")
    args = parser.parse_args()
    save_weights(open_reader(args.checkpoint).network, ReaderCalibration(), args.out)
    network, _ = load_weights(args.out)  # as it ships, in eight bits
    rows = for_calibration(real_rows().held_out)
    calibration = calibrated(Reader(network), rows[: args.most])
    save_weights(network, calibration, args.out)
    print(f"{len(rows[: args.most])} questions: {calibration}")


if __name__ == "__main__":
    main()
