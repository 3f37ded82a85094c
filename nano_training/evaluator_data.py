"""Graded questions: made up, from which the nano T5 learns, and real ones that measure it."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from nano_training.language import Passage
from nano_training.questions import new_question
from nano_training.world import World
from selfcorrect_rag.models.retrieval_evaluator import titled
from selfcorrect_rag.training.evaluator import GradedRow


def world_rows(count: int, seed: str) -> list[GradedRow]:
    """Made-up questions, each with the gold passage, one on the same subject that lacks what is
    asked, one on a subject of similar name, and one on another of the same kind."""
    world = World(seed)
    rows = []
    for _ in range(count):
        case = new_question(world, most=world.choice((2, 4, 6)))
        wrong = [case.missing(), case.similar(), case.other()]
        rows.append(GradedRow(case.question, (read(case.gold),), tuple(map(read, wrong))))
    return rows


def read(passage: Passage) -> str:
    """A made-up passage as an evaluator reads it."""
    return as_read(passage.title, " ".join(passage.sentences))


def as_read(title: str, text: str) -> str:
    """A passage with its title, as the graph gives it to an evaluator."""
    return titled(Document(text, metadata={"title": title}))


def popqa(folder: Path, *, titles: bool = True) -> list[GradedRow]:
    """PopQA: the paragraph of the subject's own page is relevant, as in CRAG's training."""
    rows = []
    for row in _lines(folder / "popqa_dev_741.jsonl"):
        own = [p for p in row["paragraphs"] if p["title"] == row["s_wiki_title"]]
        positives = tuple(as_read(p["title"] * titles, p["text"]) for p in own)
        rows.append(GradedRow(row["question"], positives))
    return rows


def popqa_corpus(folder: Path, *, titles: bool = True) -> list[str]:
    """The paragraphs of all questions, each once."""
    found = (p for row in _lines(folder / "popqa_dev_741.jsonl") for p in row["paragraphs"])
    return list(dict.fromkeys(as_read(p["title"] * titles, p["text"]) for p in found))


def musique(folder: Path) -> list[GradedRow]:
    """MuSiQue: supporting paragraphs against the others of the question."""
    rows = json.loads((folder / "musique_train100.json").read_text(encoding="utf-8"))
    return [
        _told_apart(
            row["question"],
            [
                (as_read(p["title"], p["paragraph_text"]), p["is_supporting"])
                for p in row["paragraphs"]
            ],
        )
        for row in rows
    ]


def hotpotqa(folder: Path) -> list[GradedRow]:
    """HotpotQA: passages that hold a supporting fact against the others of the question."""
    rows = json.loads((folder / "hotpotqa_train100.json").read_text(encoding="utf-8"))
    return [
        _told_apart(
            row["question"],
            [
                (as_read(title, "".join(text)), title in {t for t, _ in row["supporting_facts"]})
                for title, text in row["context"]
            ],
        )
        for row in rows
    ]


def _told_apart(question: str, passages: Sequence[tuple[str, bool]]) -> GradedRow:
    return GradedRow(
        question,
        tuple(text for text, relevant in passages if relevant),
        tuple(text for text, relevant in passages if not relevant),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)
