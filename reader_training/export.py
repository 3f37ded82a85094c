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

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from reader_training.evaluate import (
    Measured,
    Pool,
    best,
    f1,
    find_answers,
    for_calibration,
    held_out_rows,
    judge_grades,
    read_gold,
    read_retrieved,
)
from reader_training.onnx_graph import save_quantised, write_graph
from reader_training.rows import Row
from reader_training.torch_network import ReaderNetwork
from selfcorrect_rag.evaluation.metrics import contains_answer
from selfcorrect_rag.reader.network import READER, SHIPPED, TOKENIZER, WORDS
from selfcorrect_rag.reader.reader import CONFIG, PassageReading, Reader, ReaderCalibration, Span
from selfcorrect_rag.thresholds import calibrate

THRESHOLDS = [step / 20 for step in range(2, 16)]
"""Confidences at which answers and mistakes are counted, to choose ``answer_above`` by."""
UNLABELLED = ("policyqa", "selqa", "covidqa")
"""Sets without calibration: other passages answer their questions in words of their own, so that it
is not known which of the retrieved ones do."""
RIGHT = 0.6
"""F1 from which a span counts as right where the answer is a long one."""


def holds(sentence: str, said: str, row: Row) -> bool:
    """Whether a sentence, or the span in it, is the answer."""
    return is_right(said, row) or contains_answer(sentence, row.answers)


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


def fit_calibration(reader: Reader, rows: Sequence[Row]) -> ReaderCalibration:
    """Fit on the passages retrieved for each question, and on the one that answers it.

    ``reader`` has no calibration yet.
    """
    measured = read_retrieved(reader, rows, Pool(rows))
    read = [
        (m.row, reading, passage.text, states)
        for m in [*measured, *read_gold(reader, rows)]
        for reading, passage, states in zip(m.readings, m.passages, m.states, strict=True)
        if reading.spans
    ]
    logits = torch.tensor(
        [(_logit(r.relevant), *recover_logits(r.spans[0])) for _, r, _, _ in read]
    )
    states = torch.tensor([float(states) for _, _, _, states in read])
    right = torch.tensor([float(is_right(r.spans[0].text, row)) for row, r, _, _ in read])
    held = torch.tensor(
        [
            float(holds(text[slice(*r.spans[0].sentence)], r.spans[0].text, row))
            for row, r, text, _ in read
        ]
    )
    slope, offset = fit(logits[:, :1], states)
    one, two, three = fit(logits[:, [1, 2]], right)
    four, five, six = fit(logits[:, [1, 3]], held)
    calibration = ReaderCalibration((slope, offset), (one, two, three), (four, five, six))
    report(measured, calibration)
    graded_rows = [
        row._replace(scores=[_recalibrated(score, slope, offset) for score in row.scores])
        for row in judge_grades(measured)
    ]
    found = calibrate(graded_rows).thresholds
    thresholds = (round(found.upper, 3), round(found.lower, 3))
    return calibration._replace(thresholds=thresholds)


def report(measured: Sequence[Measured], calibration: ReaderCalibration) -> None:
    """Print how many answers are right and wrong above each threshold."""
    known = [
        m._replace(readings=[_recalibrate(r, calibration) for r in m.readings]) for m in measured
    ]
    for threshold in THRESHOLDS:
        said = [(m.row, best(find_answers(m, threshold))) for m in known]
        told = [holds(a.text, a.text, row) for row, a in said if a.confidence > threshold]
        print(
            f"above {threshold:.2f}: {sum(told) / len(known):.3f} right, "
            f"{(len(told) - sum(told)) / len(known):.3f} wrong of all"
        )


def _recalibrate(reading: PassageReading, calibration: ReaderCalibration) -> PassageReading:
    """A reading without calibration, with it; only its first span is."""
    if not reading.spans:
        return reading
    (a, b, c), (d, e, f) = calibration.answer, calibration.sentence
    logit, span, sentence = recover_logits(reading.spans[0])
    found = reading.spans[0]._replace(
        confidence=_probability(a * logit + b * span + c),
        sentence_confidence=_probability(d * logit + e * sentence + f),
    )
    return reading._replace(spans=(found, *reading.spans[1:]))


def _recalibrated(grade: float, slope: float, offset: float) -> float:
    return 2 * _probability(slope * _logit((grade + 1) / 2) + offset) - 1


def _probability(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def recover_logits(span: Span) -> tuple[float, float, float]:
    """What a reader without calibration made a span's confidences of: the logit that its window
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
    """Write a reader's folder: weights in eight bits, graph, calibration, tokenizer, and the word
    embeddings, which training does not change."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: values.numpy()
        for name, values in network.state_dict().items()
        if not name.endswith("word_embeddings.weight")
    }
    save_quantised(tensors, (folder / READER).with_suffix(".safetensors"))
    for name in (WORDS, TOKENIZER):
        shutil.copy(SHIPPED / name, folder)
    write_graph(folder, "reader")
    write_calibration(calibration, folder)


def write_calibration(calibration: ReaderCalibration, folder: Path) -> None:
    """Write reader.json."""
    config = {"calibration": calibration._asdict()}
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Export, load what was written, calibrate it, and write its calibration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("build/reader/checkpoint.pt"))
    parser.add_argument("--out", type=Path, default=Path("build/reader/weights"))
    parser.add_argument("--most", type=int, default=500, help="Most questions to fit on.")
    args = parser.parse_args()
    network = ReaderNetwork()
    network.load_state_dict(torch.load(args.checkpoint, weights_only=True)["network"])
    write_reader(network, ReaderCalibration(), args.out)
    rows = [row for row in for_calibration(held_out_rows()) if row.source not in UNLABELLED]
    random.Random(0).shuffle(rows)
    calibration = fit_calibration(Reader.load(args.out), rows[: args.most])
    write_calibration(calibration, args.out)
    print(f"{len(rows[: args.most])} questions: {calibration}")


if __name__ == "__main__":
    main()
