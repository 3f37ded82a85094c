"""The questions of docs/evidence.md: real ones, of which no training saw any.

Those of PopQA and HotpotQA come from sets of which nothing was trained on. Those of NQ-open are of
the fifth that training sets aside, without the half of it that calibrates confidence. Those on
people's own documents ask about the thirty files of ``benchmarks/own_documents``.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from langchain_core.documents import Document

from benchmarks.own_documents.__main__ import QUESTIONS as OWN
from reader_training.evaluate import for_calibration
from reader_training.rows import DATA, Row, lines, real_rows, tidy
from selfcorrect_rag.evaluation.matching import contains_answer
from selfcorrect_rag.evaluation.rows import Question
from selfcorrect_rag.evaluation.tasks import question_hash

SENTENCE_END = 40
"""Characters by which a sentence of a file is recognised."""


class Asked(NamedTuple):
    """A question, and whether a passage is one that answers it."""

    question: Question
    is_gold: Callable[[Document], bool]


class Set(NamedTuple):
    """Questions over one corpus."""

    name: str
    title: str
    corpus: str
    """``pages``: the pooled passages of all sets; ``files``: the thirty files."""
    asked: list[Asked]
    seen: str
    """What training has to do with it."""
    sweeps: bool = False
    """Whether knobs are swept on it too."""


def read_sets(most: int | None = None) -> list[Set]:
    """All sets.

    Args:
        most: questions of each, drawn by their words; None: all.

    Raises:
        FileNotFoundError: ../shared/data is not there.
    """
    sets = [
        Set(
            "popqa",
            "PopQA",
            "pages",
            _popqa(),
            "Nothing of this set was trained on, and no relation that it asks for.",
            sweeps=True,
        ),
        Set(
            "nq",
            "NQ-open",
            "pages",
            _nq(),
            "Other questions of this set were trained on, these neither for answers nor for "
            "calibration.",
            sweeps=True,
        ),
        Set("hotpotqa", "HotpotQA", "pages", _hotpotqa(), "Nothing of this set was trained on."),
        Set(
            "files",
            "Own documents",
            "files",
            _own(),
            "An assistant of the kind that wrote rows for training wrote these questions too; no "
            "row comes from these thirty files. Half of the questions were looked at in "
            "development, the other half when the reader was finished.",
        ),
    ]
    return [found._replace(asked=_some(found.asked, most)) for found in sets]


def _popqa() -> list[Asked]:
    found = []
    for row in lines(DATA / "popqa_dev_741.jsonl"):
        gold = {page["title"] for page in row["paragraphs"]}
        asked = Question(f"popqa-{row['id']}", row["question"], tuple(row["answers"]))
        found.append(Asked(asked, _titled(gold)))
    return found


def _nq() -> list[Asked]:
    kept = [row for row in real_rows().held_out if row.source == "nq"]
    return [_of_row(row, i) for i, row in enumerate(for_calibration(kept, kept=False))]


def _of_row(row: Row, number: int) -> Asked:
    return Asked(Question(f"nq-{number}", row.question, row.answers), _is(row))


def _hotpotqa() -> list[Asked]:
    rows = json.loads((DATA / "hotpotqa_train100.json").read_text(encoding="utf-8"))
    return [
        Asked(
            Question(f"hotpotqa-{row['_id']}", row["question"], (row["answer"],)),
            _titled({title for title, _ in row["supporting_facts"]}),
        )
        for row in rows
        if row["answer"] not in ("yes", "no")
    ]


def _own() -> list[Asked]:
    found = []
    for line in OWN.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        asked = Question(
            row["id"], row["question"], tuple(row["answers"]), unanswerable=not row["answers"]
        )
        found.append(Asked(asked, _from_file(row["file"], row["answers"], row["sentence"])))
    return found


def _titled(titles: set[str]) -> Callable[[Document], bool]:
    return lambda passage: passage.metadata["title"] in titles


def _is(row: Row) -> Callable[[Document], bool]:
    page = row.title, row.passage
    return lambda passage: (passage.metadata["title"], passage.page_content) == page


def _from_file(name: str, answers: Sequence[str], sentence: str) -> Callable[[Document], bool]:
    """Whether a passage of the file has the answer and the beginning or the end of the sentence
    that says so, which may lie in two passages."""
    ends = tidy(sentence)[:SENTENCE_END], tidy(sentence)[-SENTENCE_END:]

    def is_gold(passage: Document) -> bool:
        text = tidy(passage.page_content)
        is_there = contains_answer(text, answers) and any(end in text for end in ends)
        return is_there and Path(passage.metadata["source"]).stem == name

    return is_gold


def _some(asked: list[Asked], most: int | None) -> list[Asked]:
    """The first ``most`` by a hash of their words, in the order of the file."""
    chosen = sorted(asked, key=lambda each: question_hash(each.question.question))[:most]
    ids = {each.question.id for each in chosen}
    return [each for each in asked if each.question.id in ids]
