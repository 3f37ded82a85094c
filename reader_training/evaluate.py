"""Measure a reader on the rows set aside: ``python -m reader_training.evaluate``.

Reading: questions with the passage that answers them. Retrieval: five passages by BM25 from a pool
of 13,000. Both on the rows that are set aside of the sets that were trained on, and on sets of
which nothing was: PopQA, HotpotQA and MuSiQue. Intervals are 95 % by bootstrap over questions.
"""

import argparse
import random
import re
import string
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reader_training.mixture import REAL
from reader_training.negatives import Passages
from reader_training.never_trained import hotpotqa, musique_hops, pages, popqa
from reader_training.rows import Row, drawn, encyclopedia, natural_questions, real_rows
from reader_training.written import written_rows
from selfcorrect_rag.evaluation.metrics import contains_answer
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


def normal(text: str) -> str:
    """SQuAD's normal form: lower case, without articles, punctuation and repeated spaces."""
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def exact(said: str, answers: Sequence[str]) -> float:
    """Whether it is one of the answers."""
    return float(normal(said) in map(normal, answers))


def f1(said: str, answers: Sequence[str]) -> float:
    """The best F1 of words with an answer."""
    return max(_f1(normal(said).split(), normal(answer).split()) for answer in answers)


def _f1(said: list[str], answer: list[str]) -> float:
    common = sum((Counter(said) & Counter(answer)).values())
    return 2 * common / (len(said) + len(answer)) if common else 0.0


def interval(values: Sequence[float]) -> str:
    """The mean, and its 95 % interval."""
    drawn, values = random.Random(0), list(values)
    means = sorted(sum(drawn.choices(values, k=len(values))) / len(values) for _ in range(1000))
    return f"{sum(values) / len(values):.3f} [{means[25]:.3f}, {means[974]:.3f}]"


def held_out_rows() -> list[Row]:
    """Answerable questions that are set aside, of sets of which others were trained on."""
    rows = [*real_rows().held_out, *written_rows().held_out]
    return [row for row in rows if row.answers]


def for_calibration(rows: Sequence[Row], *, kept: bool = True) -> list[Row]:
    """The rows that calibration is fitted on, or those that are only measured."""
    # Another text than the one that set the question aside, or its fifth would lie in one half.
    return [row for row in rows if drawn(f"calibrate {row.question}", CALIBRATION) == kept]


class Pool:
    """The passages of NQ-open, of the sets never trained on, Wikipedia's and those of further
    rows, by BM25."""

    def __init__(self, further: Sequence[Row] = ()) -> None:
        rows = [*natural_questions(), *further]
        passages = [(row.title, row.passage) for row in rows]
        self._passages = Passages([*passages, *pages(), *encyclopedia()])

    def retrieve(self, questions: Sequence[str]) -> list[list[Passage]]:
        """Return the five best passages of each question."""
        found = self._passages.retrieve(questions, PASSAGES)
        return [[Passage(*passage) for passage in some] for some in found]


def read_gold(reader: Reader, rows: Sequence[Row]) -> list[Measured]:
    """Readings of the passage that answers."""
    passages = [Passage(row.title, row.passage) for row in rows]
    read = reader.read([(row.question, p) for row, p in zip(rows, passages, strict=True)])
    return [Measured(row, [r], [True], [p]) for row, r, p in zip(rows, read, passages, strict=True)]


def read_retrieved(reader: Reader, rows: Sequence[Row], pool: Pool) -> list[Measured]:
    """Readings of retrieved passages."""
    found = pool.retrieve([row.question for row in rows])
    asked = [(row.question, p) for row, some in zip(rows, found, strict=True) for p in some]
    read = iter(reader.read(asked))
    measured = []
    for row, some in zip(rows, found, strict=True):
        states = [bool(contains_answer(f"{p.title}. {p.text}", row.answers)) for p in some]
        measured.append(Measured(row, [next(read) for _ in some], states, some))
    return measured


def find_answers(m: Measured, threshold: float) -> list[Answer]:
    """What each passage says, as :class:`ReaderLLM` says it with ``answer_above=threshold``; one
    without anything to read says nothing, with a confidence of 0."""
    return [
        state_answer(m.row.question, passage.text, reading.spans, threshold)
        if reading.spans
        else Answer("", 0.0)
        for passage, reading in zip(m.passages, m.readings, strict=True)
    ]


def best(some: Sequence[Answer]) -> Answer:
    """The most confident one."""
    return max(some, key=lambda answer: answer.confidence, default=Answer("", 0.0))


def _is_right(answer: Answer, m: Measured) -> float:
    return float(contains_answer(answer.text, m.row.answers))


def report_gold(name: str, measured: Sequence[Measured]) -> None:
    """A line about reading the right passage."""
    said = [m.readings[0].spans[0].text if m.readings[0].spans else "" for m in measured]
    pairs = list(zip(said, (m.row.answers for m in measured), strict=True))
    print(
        f"{name:14} {len(said):4}  exact {interval([exact(s, a) for s, a in pairs])}  "
        f"F1 {interval([f1(s, a) for s, a in pairs])}  "
        f"contained {interval([float(contains_answer(s, a)) for s, a in pairs])}  "
        f"relevant {sum(m.readings[0].relevant > 0.5 for m in measured) / len(said):.3f}",
        flush=True,
    )


def report_retrieved(name: str, measured: Sequence[Measured], threshold: float) -> None:
    """A few lines about choosing among retrieved passages."""
    some = [m for m in measured if any(m.states)]
    none = [m for m in measured if not any(m.states)]
    said = [find_answers(m, threshold) for m in some]
    right = [_is_right(best(s), m) for s, m in zip(said, some, strict=True)]
    first = [_is_right(best(s[:1]), m) for s, m in zip(said, some, strict=True)]
    any_right = [max(_is_right(a, m) for a in s) for s, m in zip(said, some, strict=True)]
    all_said = [best(find_answers(m, threshold)) for m in measured]
    is_stated = [answer.confidence > threshold for answer in all_said]
    marks = [_is_right(answer, m) for answer, m in zip(all_said, measured, strict=True)]
    wrong = [s * (1 - mark) for s, mark in zip(is_stated, marks, strict=True)]
    correct = [s * mark for s, mark in zip(is_stated, marks, strict=True)]
    refused = [best(find_answers(m, threshold)).confidence <= threshold for m in none]
    gain = [a - b for a, b in zip(right, first, strict=True)]
    relevance = [
        (reading.relevant, float(state))
        for m in measured
        for reading, state in zip(m.readings, m.states, strict=True)
    ]
    print(
        f"{name:14} {len(measured):4}, {len(some)} with a passage that states it: right "
        f"{interval(right)}, by the first passage {interval(first)}, among the five "
        f"{interval(any_right)}, gain {interval(gain)}\n"
        f"    at {threshold}: right {interval(correct)}, wrong {interval(wrong)} of all; refused "
        f"{sum(refused) / max(1, len(none)):.3f} of "
        f"{len(none)} unstated; AUC of relevance {auc(relevance):.3f}",
        flush=True,
    )


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
    pool = Pool(kept)
    for name in filter(asked.get, RETRIEVED):
        measured = read_retrieved(reader, asked[name][: args.most], pool)
        report_retrieved(name, measured, args.threshold)
        report_grades(name, measured, reader)


def judge_grades(measured: Sequence[Measured]) -> list[Judged]:
    """Each question's grades: of all its passages, and of those that do not state an answer."""
    rows = []
    for m in measured:
        grades = [2 * reading.relevant - 1 for reading in m.readings]
        rows.append(Judged(grades, any(m.states)))
        if any(m.states) and not all(m.states):
            rows.append(Judged([g for g, s in zip(grades, m.states, strict=True) if not s], False))
    return rows


def report_grades(name: str, measured: Sequence[Measured], reader: Reader) -> None:
    """A line about the reader as CRAG's evaluator, beside the rule that the question names the
    title."""
    found = measure(judge_grades(measured), Thresholds(*reader.calibration.thresholds))
    marks = [(r.relevant, s) for m in measured for r, s in zip(m.readings, m.states, strict=True)]
    titles = [
        (float(normal(passage.title) in normal(m.row.question)), 1.0 if state else -1.0)
        for m in measured
        for passage, state in zip(m.passages, m.states, strict=True)
    ]
    print(
        f"{name:14} action accuracy {found.action_accuracy:.3f}, {found.counts}; "
        f"calibration error {expected_error(marks):.3f}; AUC of the title rule "
        f"{auc(titles):.3f}",
        flush=True,
    )


def expected_error(marks: Sequence[tuple[float, bool]], bins: int = 10) -> float:
    """Expected calibration error: how far probabilities are from shares, in bins of equal width."""
    found: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for mark in marks:
        found[min(int(mark[0] * bins), bins - 1)].append(mark)
    gaps = (
        abs(sum(p for p, _ in some) - sum(right for _, right in some)) for some in found.values()
    )
    return sum(gaps) / len(marks)


if __name__ == "__main__":
    main()
