"""Calibrate a trained reader and write it as it ships: ``python -m reader_training.export``.

Calibration is fitted on split 2 of PopQA with its retrieved passages, and on the open half of the
questions on own documents, a kind of text that nothing was trained on: from the logits and the
title to the probability that a passage answers, that a span is right, and that the sentence around
it holds the answer. No passage answers a question of two hops alone, and TriviaQA's lists of
accepted answers lack right ones, so both are left out.
"""

import argparse
import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from reader_training.evaluate import (
    Measured,
    ask_own_documents,
    ask_retrieved,
    best,
    find_answers,
    judge_grades,
    read,
)
from reader_training.onnx_graph import write_network
from reader_training.torch_network import BASES, ReaderNetwork, load_trained
from selfcorrect_rag.reader.network import (
    READER,
    SHIPPED,
    TOKENIZER,
    WORDS,
    Network,
    Row,
    load_tokenizer,
)
from selfcorrect_rag.reader.reader import (
    CONFIG,
    Reader,
    ReaderCalibration,
    Span,
    compare_title,
)
from selfcorrect_rag.thresholds import calibrate

CONFIDENCES = [step / 20 for step in range(2, 19)]
"""Confidences at which answers and mistakes are counted, to choose ``answer_above`` by."""
CALIBRATION_SPLIT = 2
SURELY_NOT = -3.0
"""Logit of a passage below which it is left out: there an answer stands only by chance."""


class RememberingNetwork(Network):
    """Computes each row once: calibration, thresholds and the evidence's methods read the same."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.known: dict[tuple[int, ...], list[Any]] = {}

    def run(self, rows: Sequence[Row]) -> list[list[Any]]:
        new = {ids: row for row in rows if (ids := tuple(row.ids)) not in self.known}
        self.known |= zip(new, super().run([*new.values()]), strict=True)
        return [self.known[tuple(row.ids)] for row in rows]


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


def calibration_questions(reader: Reader, most: int | None = None) -> list[Measured]:
    """Ask the questions that calibration is fitted on, at most so many of each kind."""
    asked = ask_retrieved(reader, CALIBRATION_SPLIT, "popqa", most=most)
    return [*asked, *ask_own_documents(reader, "open", most)]


def fit_calibration(measured: Sequence[Measured]) -> ReaderCalibration:
    """Fit on readings without calibration."""
    logits, states, spans, right, held = [], [], [], [], []
    for m in measured:
        for reading, passage, state in zip(m.readings, m.passages, m.states, strict=True):
            title, logit = compare_title(m.question, *passage), _logit(reading.relevant)
            if logit < SURELY_NOT:
                continue
            if state is not None:
                logits.append((logit, *title))
                states.append(float(state))
            for span in reading.spans[:1]:
                texts = (span.text, passage.text[slice(*span.sentence)])
                is_right, is_held = (state is not False and m.accepts(text) for text in texts)
                spans.append((*recover_logits(span), *title))
                right.append(float(is_right))
                held.append(float(is_held))
    slope, named, other, offset = fit(torch.tensor(logits), torch.tensor(states))
    slope = max(slope, 1e-3)  # a reader that learned nothing
    title = (round(named / slope, 4), round(other / slope, 4))
    features = torch.tensor(spans)
    features[:, 0] += features[:, 3:] @ torch.tensor(title)
    answer: Any = fit(features[:, [0, 1]], torch.tensor(right))
    whole: Any = fit(features[:, [0, 2]], torch.tensor(held))
    return ReaderCalibration((slope, offset), tuple(answer), tuple(whole), title=title)


def fit_thresholds(reader: Reader, measured: Sequence[Measured]) -> tuple[float, float]:
    """Return CRAG's thresholds for a calibrated reader; print how many answers are right and wrong
    above each confidence."""
    known = [read(reader, *m[:3], m.accepts) for m in measured]
    for threshold in CONFIDENCES:
        said = [(m, best(find_answers(m, threshold))) for m in known]
        told = [m.accepts(a.text) for m, a in said if a.confidence > threshold]
        right, wrong = sum(told) / len(said), (len(told) - sum(told)) / len(said)
        print(f"above {threshold:.2f}: {right:.3f} right, {wrong:.3f} wrong of all")
    found = calibrate(judge_grades(known)).thresholds
    return round(found.upper, 3), round(found.lower, 3)


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
    """Write a reader's folder: network, calibration, tokenizer, and for the small one the word
    embeddings, which training does not change."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(BASES[network.size] / TOKENIZER, folder)
    (folder / WORDS).unlink(missing_ok=True)
    if network.size == "small":
        shutil.copy(SHIPPED / WORDS, folder)
    write_network(network, folder)
    write_calibration(calibration, folder)


def write_calibration(calibration: ReaderCalibration, folder: Path) -> None:
    """Write reader.json."""
    config = {"calibration": calibration._asdict()}
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Export, load what was written, calibrate it, and write its calibration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trained", type=Path, default=Path("build/reader-small"))
    parser.add_argument("--out", type=Path, default=Path("build/reader-small/weights"))
    parser.add_argument("--most", type=int, help="Most questions of each kind to fit on.")
    parser.add_argument("--calibrate-only", action="store_true", help="Keep the weights in --out.")
    args = parser.parse_args()
    if not args.calibrate_only:
        write_reader(load_trained(args.trained), ReaderCalibration(), args.out)
    network, tokenizer = RememberingNetwork(args.out / READER), load_tokenizer(args.out)
    measured = calibration_questions(Reader(network, ReaderCalibration(), tokenizer), args.most)
    calibration = fit_calibration(measured)
    thresholds = fit_thresholds(Reader(network, calibration, tokenizer), measured)
    write_calibration(calibration._replace(thresholds=thresholds), args.out)
    print(f"{len(measured)} questions: {calibration} {thresholds}")


if __name__ == "__main__":
    main()
