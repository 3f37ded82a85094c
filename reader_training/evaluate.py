"""Measure a reader: ``python -m reader_training.evaluate --reader FOLDER``.

Answers to questions of split 3 with the five passages that were retrieved for them in all of
Wikipedia, to questions on own documents (by default the half that is set aside), and to near
misses: questions on short texts that state something else. The reader gives the surest answer of
the passages, if it is sure enough. Then the reader as CRAG's evaluator, and its speed. Intervals
are 95 % by bootstrap over questions.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.own_documents.files import QUESTIONS as OWN_DOCUMENTS
from benchmarks.own_documents.files import is_right, write_texts
from reader_training.rows import QUESTIONS, Row, drawn, lines, retrieved
from selfcorrect_rag.evaluation.metrics import contains_answer
from selfcorrect_rag.evaluation.statistics import bootstrap_mean
from selfcorrect_rag.reader.answers import Answer, state_answer
from selfcorrect_rag.reader.network import SHIPPED
from selfcorrect_rag.reader.reader import Passage, PassageReading, Reader, compare_title
from selfcorrect_rag.search import Index, index_paths
from selfcorrect_rag.thresholds import ANSWER_ABOVE, Judged, Thresholds, measure
from selfcorrect_rag.training.evaluator import auc

CALIBRATION = 0.5
"""Share of the questions set aside of the real sets that may be looked at."""
PASSAGES = 5
"""Passages read for a question."""
TIMED = 20
"""Questions whose reading is timed."""
RESAMPLES = 1000
Accepts = Callable[[str], bool]


class Measured(NamedTuple):
    """One question: its passages in the order of retrieval, which of them state an answer (None:
    unknown), what was read in them, and what is accepted as an answer."""

    question: str
    passages: list[Passage]
    states: list[bool | None]
    readings: list[PassageReading]
    accepts: Accepts

    @property
    def is_stated(self) -> bool:
        """Whether some passage states an answer."""
        return any(state is not False for state in self.states)


def interval(values: Iterable[float]) -> str:
    """Return the mean and its 95 % interval."""
    found = bootstrap_mean(scores) if (scores := list(values)) else None
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]" if found else "none"


def for_calibration(rows: Sequence[Row], *, kept: bool = True) -> list[Row]:
    """The rows of the half that may be looked at, or of the other one, which is only measured."""
    # Another text than the one that set the question aside, or its fifth would lie in one half.
    return [row for row in rows if drawn(f"calibrate {row.question}", CALIBRATION) == kept]


def read(
    reader: Reader, question: str, passages: list[Passage], states: list[bool | None], ok: Accepts
) -> Measured:
    """Read the passages of a question."""
    readings = reader.read([(question, passage) for passage in passages])
    return Measured(question, passages, states, readings, ok)


def ask_retrieved(
    reader: Reader, split: int, *sources: str, most: int | None = None
) -> list[Measured]:
    """Ask the questions of a split that come from these sets, with the passages retrieved."""
    measured: list[Measured] = []
    for asked in retrieved(split):
        if asked.source in sources and len(measured) != most:
            passages = [Passage(*each) for each in asked.passages[:PASSAGES]]
            stated = [asked.stated(*passage) for passage in passages]
            # An answer on a namesake's page is not this question's.
            states: list[bool | None] = [bool(each) for each in stated]
            ok = partial(contains_answer, answers=asked.answers)
            measured.append(read(reader, asked.question, passages, states, ok))
    return measured


def ask_own_documents(reader: Reader, half: str, most: int | None = None) -> list[Measured]:
    """Ask the questions on thirty files, indexed as `selfcorrect-rag index` does it."""
    with tempfile.TemporaryDirectory() as place:
        files = Path(place, "files")
        files.mkdir()
        missing = write_texts(files)
        index = Index(Path(place, "index"))
        index_paths([files], index)
        retriever, measured = index.as_retriever(PASSAGES), list[Measured]()
        for row in lines(OWN_DOCUMENTS):
            if row["half"] != half or row["file"] in missing or len(measured) == most:
                continue
            found = retriever.invoke(row["question"])
            passages = [Passage(d.metadata.get("title") or "", d.page_content) for d in found]
            ok = partial(is_right, row=row)
            is_known = not {"yes", "no"} & {*row["answers"]}
            states = [ok(passage.text) if is_known else None for passage in passages]
            measured.append(read(reader, row["question"], passages, states, ok))
        return measured


def ask_near_misses(reader: Reader) -> tuple[list[Measured], list[Measured]]:
    """Ask what the texts do not say, and what they say in its place."""
    missed, stated = [], []
    for row in lines(QUESTIONS / "near_misses.jsonl"):
        passage = [Passage(row["title"], row["text"])]
        missed.append(
            read(reader, row["question"], passage, [False], partial(contains_answer, answers=()))
        )
        ok = partial(contains_answer, answers=[row["answer"]])
        stated.append(read(reader, row["answered"], passage, [True], ok))
    return missed, stated


def find_answers(m: Measured, threshold: float) -> list[Answer]:
    """Return what each passage says, as :class:`ReaderLLM` does with ``answer_above=threshold``;
    one without anything to read says nothing, with a confidence of 0."""
    return [
        state_answer(m.question, passage.text, reading.spans, threshold)
        if reading.spans
        else Answer("", 0.0)
        for passage, reading in zip(m.passages, m.readings, strict=True)
    ]


def best(some: Sequence[Answer]) -> Answer:
    """The most confident one."""
    return max(some, key=lambda answer: answer.confidence, default=Answer("", 0.0))


def report_answers(name: str, measured: Sequence[Measured], threshold: float) -> None:
    """Print what is stated and refused, right and wrong, and how far confidence is from truth."""
    given = [best(find_answers(m, threshold)) for m in measured]
    right = [m.accepts(answer.text) for answer, m in zip(given, measured, strict=True)]
    stated = [answer.confidence > threshold for answer in given]
    both = list(zip(right, stated, measured, strict=True))
    marks = [(a.confidence, ok) for a, ok in zip(given, right, strict=True)]
    told = [mark for mark, is_told in zip(marks, stated, strict=True) if is_told]
    print(
        f"{name}: {len(measured)} questions, {sum(m.is_stated for m in measured)} answerable\n"
        f"  of all: right {interval(ok and told for ok, told, _ in both)}, "
        f"wrong {interval(told and not ok for ok, told, _ in both)}, "
        f"refused {interval(not told for _, told, _ in both)}\n"
        f"  of the answerable: right {interval(ok and told for ok, told, m in both if m.is_stated)}"
        f", surest answer right {interval(ok for ok, _, m in both if m.is_stated)}\n"
        f"  refused where none states it: "
        f"{interval(not told for _, told, m in both if not m.is_stated)}\n"
        f"  ECE {expected_error(marks):.3f}; of what is stated {expected_error(told):.3f}, mean "
        f"confidence {sum(p for p, _ in told) / max(1, len(told)):.3f}, "
        f"right {sum(ok for _, ok in told) / max(1, len(told)):.3f}",
        flush=True,
    )


def report_grades(name: str, measured: Sequence[Measured], thresholds: Thresholds) -> None:
    """Print the reader as CRAG's evaluator, beside the rule that a passage is relevant if the
    question names its title."""
    graded = [
        [
            (reading.relevant, compare_title(m.question, passage.title)[0], float(state))
            for passage, reading, state in zip(m.passages, m.readings, m.states, strict=True)
            if state is not None
        ]
        for m in measured
    ]

    def areas(some: Sequence[Sequence[tuple[float, float, float]]]) -> tuple[float, float]:
        every = [grade for grades in some for grade in grades]
        return auc([(g[0], g[2]) for g in every]), auc([(g[1], g[2]) for g in every])

    chance = random.Random(0)
    resampled = (chance.choices(graded, k=len(graded)) for _ in range(RESAMPLES))
    # An area needs passages of both kinds, which a sample of few questions may lack.
    both = (some for some in resampled if len({g[2] for grades in some for g in grades}) == 2)
    gains = sorted(a - b for a, b in map(areas, both))
    low, high = (gains[round(q * (len(gains) - 1))] for q in (0.025, 0.975))
    reader, rule = areas(graded)
    grades = [(r, state == 1) for some in graded for r, _, state in some]
    action = measure(judge_grades(measured), thresholds).action_accuracy
    print(
        f"{name}, evaluator: AUC {reader:.3f}, title rule {rule:.3f}, difference "
        f"{reader - rule:+.3f} [{low:+.3f}, {high:+.3f}]; action accuracy {action:.3f}, ECE of "
        f"relevance {expected_error(grades):.3f}",
        flush=True,
    )


def judge_grades(measured: Sequence[Measured]) -> list[Judged]:
    """Return each question's grades: of all passages, and of those without an answer."""
    rows = []
    for m in measured:
        grades = [2 * reading.relevant - 1 for reading in m.readings]
        rows.append(Judged(grades, m.is_stated))
        rest = [g for g, state in zip(grades, m.states, strict=True) if state is False]
        if m.is_stated and rest:
            rows.append(Judged(rest, False))
    return rows


def expected_error(marks: Sequence[tuple[float, bool]], bins: int = 10) -> float:
    """Return how far probabilities are from shares, in bins of equal width."""
    found: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for mark in marks:
        found[min(int(mark[0] * bins), bins - 1)].append(mark)
    gaps = (abs(sum(p - right for p, right in some)) for some in found.values())
    return sum(gaps) / max(1, len(marks))


def report_speed(reader: Reader, measured: Sequence[Measured]) -> None:
    """Print the CPU seconds of a question's passages on one thread."""
    os.environ["OMP_NUM_THREADS"] = "1"
    begun, tokens = time.process_time(), 0
    for m in measured[:TIMED]:
        tokens += sum(r.tokens for r in reader.read([(m.question, p) for p in m.passages]))
    seconds = (time.process_time() - begun) / len(measured[:TIMED])
    print(f"five passages: {seconds:.3f} s of CPU, {tokens / len(measured[:TIMED]):.0f} tokens")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reader", type=Path, default=SHIPPED, help="Folder.")
    parser.add_argument("--split", type=int, default=3, help="3 measures; take 2 to develop.")
    parser.add_argument("--half", default="set_aside", help="open, to develop.")
    parser.add_argument("--most", type=int, help="Most questions of a set.")
    parser.add_argument("--threshold", type=float, default=ANSWER_ABOVE)
    args = parser.parse_args()
    reader = Reader.load(args.reader)
    print(json.dumps(reader.calibration._asdict()))
    popqa, trivia, hops = (
        ask_retrieved(reader, args.split, name, most=args.most)
        for name in ("popqa", "triviaqa", "multihop")
    )
    report_answers(f"split {args.split}", [*popqa, *trivia], args.threshold)
    report_answers(f"split {args.split}, two hops", hops, args.threshold)
    report_answers("own documents", ask_own_documents(reader, args.half, args.most), args.threshold)
    missed, stated = (
        [best(find_answers(m, args.threshold)).confidence > args.threshold for m in some]
        for some in ask_near_misses(reader)
    )
    print(f"near misses: {sum(missed)} of {len(missed)} stated; of their like, which the texts "
          f"answer, {sum(stated)} stated")  # fmt: skip
    thresholds = Thresholds(*reader.calibration.thresholds)
    report_grades("popqa", popqa, thresholds)
    report_grades("triviaqa", trivia, thresholds)
    report_speed(reader, [*popqa, *trivia])


if __name__ == "__main__":
    main()
