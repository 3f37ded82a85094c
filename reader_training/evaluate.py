"""Measure a reader on the rows set aside: ``python -m reader_training.evaluate``.

Reading: questions with the passage that answers them. Retrieval: five passages by BM25 from a pool
of 13,000. Both on the rows that are set aside of the sets that were trained on, and on sets of
which nothing was: PopQA, HotpotQA and MuSiQue. Intervals are 95 % by bootstrap over questions.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reader_training.mixture import REAL, Passages
from reader_training.rows import (
    Row,
    drawn,
    encyclopedia,
    hotpotqa,
    musique_hops,
    natural_questions,
    pages,
    popqa,
    real_rows,
)
from reader_training.written import written_rows
from selfcorrect_rag.evaluation.metrics import contains_answer, normalise
from selfcorrect_rag.evaluation.statistics import bootstrap_mean
from selfcorrect_rag.reader.answers import Answer, state_answer
from selfcorrect_rag.reader.network import SHIPPED
from selfcorrect_rag.reader.reader import Passage, PassageReading, Reader
from selfcorrect_rag.thresholds import ANSWER_ABOVE, Judged, Thresholds, measure
from selfcorrect_rag.training.evaluator import auc

CALIBRATION = 0.5
"""Share of the questions set aside that calibration is fitted on; they are not measured here."""
SETS = (*REAL, "written: manuals", "written: wikipedia", "written: notes")
"""Sets of which most was trained on."""
RETRIEVED = ("nq", "qed", "fairytaleqa", "written: manuals", "popqa", "hotpotqa", "musique")
"""Sets that are also measured with retrieved passages."""
PASSAGES = 5
"""Passages retrieved for a question."""


class Measured(NamedTuple):
    """One question: its readings, in the order of retrieval, and which passages state an answer."""

    row: Row
    readings: list[PassageReading]
    states: list[bool]
    passages: list[Passage]


def f1(said: str, answers: Sequence[str]) -> float:
    """Return the best F1 of words with an answer."""
    words, found = normalise(said).split(), [0.0]
    for answer in answers:
        right = normalise(answer).split()
        if common := (Counter(words) & Counter(right)).total():
            found.append(2 * common / (len(words) + len(right)))
    return max(found)


def interval(values: Sequence[float]) -> str:
    """Return the mean and its 95 % interval."""
    found = bootstrap_mean(values) if values else None
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]" if found else "none"


def held_out_rows() -> list[Row]:
    """Answerable questions that are set aside, of sets of which others were trained on."""
    rows = [*real_rows().held_out, *written_rows().held_out]
    return [row for row in rows if row.answers]


def for_calibration(rows: Sequence[Row], *, kept: bool = True) -> list[Row]:
    """The rows that calibration is fitted on, or those that are only measured."""
    # Another text than the one that set the question aside, or its fifth would lie in one half.
    return [row for row in rows if drawn(f"calibrate {row.question}", CALIBRATION) == kept]


def pool(further: Sequence[Row] = ()) -> Passages:
    """Index the passages of NQ-open, of the sets never trained on, Wikipedia's and those of further
    rows."""
    rows = [*natural_questions(), *further]
    return Passages([*((row.title, row.passage) for row in rows), *pages(), *encyclopedia()])


def read_gold(reader: Reader, rows: Sequence[Row]) -> list[Measured]:
    """Read the passage that answers."""
    passages = [Passage(row.title, row.passage) for row in rows]
    read = reader.read([(row.question, p) for row, p in zip(rows, passages, strict=True)])
    return [Measured(row, [r], [True], [p]) for row, r, p in zip(rows, read, passages, strict=True)]


def read_retrieved(reader: Reader, rows: Sequence[Row], passages: Passages) -> list[Measured]:
    """Read the five best passages of each question."""
    retrieved = passages.retrieve([row.question for row in rows], PASSAGES)
    found = [[Passage(*passage) for passage in some] for some in retrieved]
    asked = [(row.question, p) for row, some in zip(rows, found, strict=True) for p in some]
    read = iter(reader.read(asked))
    measured = []
    for row, some in zip(rows, found, strict=True):
        states = [bool(contains_answer(f"{p.title}. {p.text}", row.answers)) for p in some]
        measured.append(Measured(row, [next(read) for _ in some], states, some))
    return measured


def find_answers(m: Measured, threshold: float) -> list[Answer]:
    """Return what each passage says, as :class:`ReaderLLM` does with ``answer_above=threshold``;
    one without anything to read says nothing, with a confidence of 0."""
    return [
        state_answer(m.row.question, passage.text, reading.spans, threshold)
        if reading.spans
        else Answer("", 0.0)
        for passage, reading in zip(m.passages, m.readings, strict=True)
    ]


def best(some: Sequence[Answer]) -> Answer:
    """The most confident one."""
    return max(some, key=lambda answer: answer.confidence, default=Answer("", 0.0))


def report_gold(name: str, measured: Sequence[Measured]) -> None:
    """Print a line about reading the right passage."""
    said = [m.readings[0].spans[0].text if m.readings[0].spans else "" for m in measured]
    pairs = list(zip(said, (m.row.answers for m in measured), strict=True))
    same = [float(normalise(text) in map(normalise, answers)) for text, answers in pairs]
    print(
        f"{name:14} {len(said):4}  exact {interval(same)}  "
        f"F1 {interval([f1(*pair) for pair in pairs])}  "
        f"contained {interval([float(contains_answer(*pair)) for pair in pairs])}",
        flush=True,
    )


def report_retrieved(
    name: str, measured: Sequence[Measured], threshold: float, thresholds: Thresholds
) -> None:
    """Print lines about choosing among retrieved passages, and about the reader as CRAG's
    evaluator."""

    def is_right(answer: Answer, m: Measured) -> float:
        return float(contains_answer(answer.text, m.row.answers))

    said = [find_answers(m, threshold) for m in measured]
    stated = [(s, m) for s, m in zip(said, measured, strict=True) if any(m.states)]
    right = [is_right(best(s), m) for s, m in stated]
    first = [is_right(best(s[:1]), m) for s, m in stated]
    any_right = [max(is_right(a, m) for a in s) for s, m in stated]
    given = [(best(s), m) for s, m in zip(said, measured, strict=True)]
    marks = [is_right(a, m) if a.confidence > threshold else None for a, m in given]
    refused = [mark is None for mark, m in zip(marks, measured, strict=True) if not any(m.states)]
    found = measure(judge_grades(measured), thresholds)
    grades = [(r.relevant, s) for m in measured for r, s in zip(m.readings, m.states, strict=True)]
    print(
        f"{name:14} {len(measured):4}, {len(stated)} with a passage that states it: right "
        f"{interval(right)}, by the first passage {interval(first)}, among the five "
        f"{interval(any_right)}, gain "
        f"{interval([a - b for a, b in zip(right, first, strict=True)])}\n"
        f"    at {threshold}: right {interval([float(mark == 1) for mark in marks])}, wrong "
        f"{interval([float(mark == 0) for mark in marks])} of all; refused {sum(refused)} of "
        f"{len(refused)} unstated\n"
        f"    AUC of relevance {auc(grades):.3f}, action accuracy {found.action_accuracy:.3f}, "
        f"{found.counts}, calibration error {expected_error(grades):.3f}",
        flush=True,
    )


def judge_grades(measured: Sequence[Measured]) -> list[Judged]:
    """Return each question's grades: of all passages, and of those without an answer."""
    rows = []
    for m in measured:
        grades = [2 * reading.relevant - 1 for reading in m.readings]
        rows.append(Judged(grades, any(m.states)))
        if any(m.states) and not all(m.states):
            rows.append(Judged([g for g, s in zip(grades, m.states, strict=True) if not s], False))
    return rows


def expected_error(marks: Sequence[tuple[float, bool]], bins: int = 10) -> float:
    """Return how far probabilities are from shares, in bins of equal width."""
    found: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for mark in marks:
        found[min(int(mark[0] * bins), bins - 1)].append(mark)
    gaps = (abs(sum(p - right for p, right in some)) for some in found.values())
    return sum(gaps) / len(marks)


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reader", type=Path, default=SHIPPED, help="Folder.")
    parser.add_argument("--most", type=int, default=1000, help="Most questions of a set.")
    parser.add_argument("--threshold", type=float, default=ANSWER_ABOVE)
    args = parser.parse_args()
    reader = Reader.load(args.reader)
    kept = for_calibration(held_out_rows(), kept=False)
    asked = {name: [row for row in kept if row.source == name] for name in SETS}
    asked["popqa"] = [row for row in popqa() if contains_answer(row.passage, row.answers)]
    asked["musique"] = musique_hops()
    for name, rows in asked.items():
        if rows:  # no file of the questions on manuals may be on this machine
            report_gold(name, read_gold(reader, rows[: args.most]))
    asked["popqa"], asked["hotpotqa"] = popqa(), hotpotqa()
    passages, thresholds = pool(kept), Thresholds(*reader.calibration.thresholds)
    for name in filter(asked.get, RETRIEVED):
        measured = read_retrieved(reader, asked[name][: args.most], passages)
        report_retrieved(name, measured, args.threshold, thresholds)


if __name__ == "__main__":
    main()
