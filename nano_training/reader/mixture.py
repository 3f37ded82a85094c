"""What training reads: all rows, in one file of the run's folder, and their shares."""

import json
import logging
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from nano_training.reader.kept_out import FILES
from nano_training.reader.manuals import manual_rows, normalised
from nano_training.reader.negatives import Negatives, encyclopedia
from nano_training.reader.relations import relation_rows
from nano_training.reader.rows import DATA, READING, Row, drawn, lines, real_rows, tidy

TEMPLATES = Path(__file__).parents[1] / "templates"
REAL = ("nq", *READING)
SHARES = {"nq": 3.0, "qed": 3.0, "policyqa": 0.6, "covidqa": 0.7, "relations": 0.4}
"""How often a row of a source comes, against the others' 1."""
CHANGELOGS, MANUALS = 0.2, 0.45
"""The same for rows of changelogs, most of which are Debian's, and of other manuals."""
PUBMED_HELD_OUT = 0.2
"""Share of PubMedQA's questions that is set aside."""


def share(row: Row) -> float:
    """How often it comes, against 1."""
    if row.source in REAL or row.source == "relations":
        return SHARES.get(row.source, 1.0)
    return CHANGELOGS if row.source.startswith("changelog") else MANUALS


def training_rows(folder: Path) -> list[Row]:
    """All rows, read from ``rows.jsonl`` in ``folder`` or written there.

    No row comes from a file of the questions on own documents.
    """
    path = folder / "rows.jsonl"
    if not path.exists():
        rows = [*real_rows().train, *relation_rows(DATA), *manual_rows(exclude=own_documents())]
        part = path.with_suffix(".part")
        part.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        part.rename(path)
        logging.info("%d rows in %s", len(rows), path)
    return [Row(q, t, p, tuple(a), s) for q, t, p, a, s in map(json.loads, path.open())]


def own_documents() -> set[str]:
    """Packages, pages and folders of the files that the questions on own documents are about."""
    names: set[str] = set()
    for key, place in FILES.items():
        names |= {normalised(key), place.package or Path(place.file).parent.name}
    return names


def negatives(rows: Sequence[Row]) -> Negatives:
    """What may be retrieved for them: their passages, and further ones of Wikipedia."""
    return Negatives(rows, encyclopedia())


def yes_no_rows(*, held_out: bool = False, data: Path = DATA) -> list[tuple[Row, bool]]:
    """Questions that yes or no answers: PubMedQA with its abstract, StrategyQA with its facts."""
    rows = []
    for found in json.loads((data / "pubmedqa_pqal_1000.json").read_text()).values():
        if found["final_decision"] in ("yes", "no"):
            text = tidy(" ".join(found["CONTEXTS"][-2:]))
            row = Row(found["QUESTION"], "", text, (), "pubmedqa")
            if drawn(row.question, PUBMED_HELD_OUT) == held_out:
                rows.append((row, found["final_decision"] == "yes"))
    if not held_out:
        for found in json.loads((data / "strategyqa_dev_229.json").read_text()):
            row = Row(found["question"], "", " ".join(found["facts"]), (), "strategyqa")
            rows.append((row, found["answer"] in (True, "True")))
    return rows


def requests_without_evidence() -> Iterator[str]:
    """Tasks and courtesies that need no passage, from the made-up world."""
    tasks = tomllib.loads((TEMPLATES / "tasks.toml").read_text(encoding="utf-8"))["task"]
    values = {"a": "17", "b": "5", "big": "40", "word": "garden", "text": "The sun is shining."}
    for task in tasks:
        for ask in task["asks"]:
            try:
                yield ask.format(**values)
            except KeyError:  # a task with values of its own
                continue


def selfrag_questions(data: Path = DATA) -> list[str]:
    """Instructions of Self-RAG's own training set that were answered without retrieval."""
    return [
        row["instruction"]
        for row in lines(data / "selfrag_generator_train_50samples.jsonl")
        if "[No Retrieval]" in row["output"]
    ]
