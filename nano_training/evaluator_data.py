"""Training data of the evaluators: graded questions, made up and real."""

import gzip
import json
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from nano_training.language import Passage
from nano_training.questions import new_question
from nano_training.world import World
from selfcorrect_rag.models.retrieval_evaluator import titled
from selfcorrect_rag.nodes.base.strips import decompose
from selfcorrect_rag.prompts.sentences import sentences
from selfcorrect_rag.training.evaluator import GradedRow

SHORTEST = 8
"""Words that must be left of a passage without its answer."""


def world_rows(count: int, seed: str, *, held_out: bool = False) -> list[GradedRow]:
    """Made-up questions, each with the gold passage, one on the same subject that lacks what is
    asked, one on a subject of similar name, and one on another of the same kind."""
    world = World(seed, held_out=held_out)
    rows = []
    for _ in range(count):
        case = new_question(world, most=world.choice((2, 4, 6)), held_out=held_out)
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


def nq_open(folder: Path) -> list[GradedRow]:
    """NQ-open: the gold passage."""
    with gzip.open(folder / "nq_open_oracle_2655.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [
        GradedRow(row["question"], tuple(as_read(c["title"], c["text"]) for c in row["ctxs"]))
        for row in rows
    ]


def pubmedqa(folder: Path) -> list[GradedRow]:
    """PubMedQA: the abstract that a question was made from."""
    rows = json.loads((folder / "pubmedqa_pqal_1000.json").read_text(encoding="utf-8"))
    return [GradedRow(row["QUESTION"], (" ".join(row["CONTEXTS"]),)) for row in rows.values()]


def corpus_2wiki(folder: Path) -> list[str]:
    """The passages of 2WikiMultihopQA, without questions."""
    rows = json.loads((folder / "2wikimultihopqa_corpus_6119.json").read_text(encoding="utf-8"))
    return [as_read(row["title"], row["text"]) for row in rows]


def harder(folder: Path, seed: str) -> list[GradedRow]:
    """Rows that lie closer to the border, all of training questions.

    For questions whose answers are known: the strip of the gold passage that holds an answer is
    relevant, the gold passage without the sentences that hold one is not. For PopQA also another
    person's page, where first or last name is the same.
    """
    chance = random.Random(seed)
    rows: list[GradedRow] = []
    people = []
    for row in _lines(folder / "popqa_dev_741.jsonl"):
        for p in row["paragraphs"]:
            if p["title"] == row["s_wiki_title"] and _train(row["question"]):
                rows += _cut(row["question"], row["answers"], p["title"], p["text"])
                people.append((row["question"], p))
    rows += list(_namesakes(people, chance))
    with gzip.open(folder / "nq_open_oracle_2655.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            for c in row["ctxs"]:
                if _train(row["question"]):
                    rows += _cut(row["question"], row["answers"], c["title"], c["text"])
    return rows


def _namesakes(
    people: Sequence[tuple[str, dict[str, Any]]], chance: random.Random
) -> Iterator[GradedRow]:
    """Questions on a made-up namesake of each person, to which the person's page is no answer."""
    names = [page["title"].split(" (")[0].split() for _, page in people]
    for (question, page), name in zip(people, names, strict=True):
        if len(name) < 2 or " ".join(name) not in question:
            continue
        at = chance.choice((0, -1))
        other = chance.choice(names)[at]
        namesake = list(name)
        namesake[at] = other
        renamed = question.replace(" ".join(name), " ".join(namesake))
        if other != name[at] and _train(renamed):
            yield GradedRow(renamed, (), (as_read(page["title"], page["text"]),))


def _cut(question: str, answers: Sequence[str], title: str, text: str) -> Iterator[GradedRow]:
    found = re.compile("|".join(rf"\b{re.escape(answer)}\b" for answer in answers), re.IGNORECASE)
    strips = [strip for strip in decompose(text) if found.search(strip)]
    rest = " ".join(s for s in sentences(text) if not found.search(s))
    positives = tuple(as_read(title, strip) for strip in strips[:1] if strip != text)
    # An answer such as "B. Traven" can lie across what looks like two sentences.
    is_wrong = strips and not found.search(rest) and len(rest.split()) >= SHORTEST
    negatives = (as_read(title, rest),) if is_wrong else ()
    if positives or negatives:
        yield GradedRow(question, positives, negatives)


def _told_apart(question: str, passages: Sequence[tuple[str, bool]]) -> GradedRow:
    return GradedRow(
        question,
        tuple(text for text, relevant in passages if relevant),
        tuple(text for text, relevant in passages if not relevant),
    )


def _train(question: str) -> bool:
    return GradedRow(question).part == "train"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)
