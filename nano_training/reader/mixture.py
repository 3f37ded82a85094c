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
from nano_training.reader.written import written_rows

TEMPLATES = Path(__file__).parents[1] / "templates"
REAL = ("nq", *READING)
SHARES = {"nq": 3.0, "qed": 3.0, "policyqa": 0.5, "covidqa": 0.7, "selqa": 0.5}
"""How often a row of a source comes, against the others' 1."""
WRITTEN = 2.5
"""The same for rows that were written for this training."""
RELATIONS = (0.3, 0.1)
"""The same for relations that the page states, and for others. More of these, and the reader takes
every relation that it was not trained on for one that is not stated."""
CHANGELOGS, MANUALS = 0.2, 0.4
"""The same for rows of changelogs, most of which are Debian's, and of other manuals."""
PUBMED_HELD_OUT = 0.2
"""Share of PubMedQA's questions that is set aside."""


def share(row: Row) -> float:
    """How often it comes, against 1."""
    if row.source in REAL:
        return SHARES.get(row.source, 1.0)
    if row.source == "relations":
        return RELATIONS[not row.answers]
    if row.source.startswith("written"):
        return WRITTEN
    return CHANGELOGS if row.source.startswith("changelog") else MANUALS


def training_rows(folder: Path) -> list[Row]:
    """All rows, read from ``rows.jsonl`` in ``folder`` or written there.

    No row comes from a file of the questions on own documents.
    """
    path = folder / "rows.jsonl"
    if not path.exists():
        rows = [*real_rows().train, *relation_rows(DATA), *written_rows().train]
        rows += manual_rows(exclude=own_documents())
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


def yes_no_rows(data: Path = DATA) -> list[Row]:
    """Questions that yes or no answers: PubMedQA with its abstract, StrategyQA with its facts."""
    rows = []
    for found in json.loads((data / "pubmedqa_pqal_1000.json").read_text()).values():
        text = tidy(" ".join(found["CONTEXTS"][-2:]))
        if not drawn(found["QUESTION"], PUBMED_HELD_OUT):
            rows.append(Row(found["QUESTION"], "", text, (), "pubmedqa"))
    rows += [
        Row(found["question"], "", " ".join(found["facts"]), (), "strategyqa")
        for found in json.loads((data / "strategyqa_dev_229.json").read_text())
    ]
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
