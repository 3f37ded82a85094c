"""Recall of an index by words, by vectors and by both: ``python -m benchmarks.retrieval``.

Three corpora: the thirty files of benchmarks/own_documents (a hit is a passage with the answer),
and the pooled passages of NQ-open and PopQA in ../shared/data (a hit is a passage that the row
marks as supporting). Each figure has its 95 % bootstrap interval; "hybrid_minus_..." are paired
differences. Ends in one line of JSON.
"""

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

from langchain_core.documents import Document

from benchmarks.own_documents.__main__ import QUESTIONS, is_right
from benchmarks.own_documents.files import write_texts
from reader_training.rows import DATA, lines
from selfcorrect_rag.evaluation.statistics import bootstrap_mean
from selfcorrect_rag.search import Index, index_paths
from selfcorrect_rag.search.index import Ranking

DEPTHS = (5, 10)
Question = tuple[str, Callable[[Document], bool]]
"""A question, and whether a passage is a hit."""


def own_documents(index: Index) -> list[Question]:
    """Index up to thirty files and return the answerable questions on them that are not set aside.

    Files that are not on this machine are named, and nothing is asked about them.
    """
    with tempfile.TemporaryDirectory() as folder:
        if missing := write_texts(Path(folder)):
            print(f"own_documents: without {', '.join(missing)}", flush=True)
        index_paths([folder], index)
    rows = map(json.loads, QUESTIONS.read_text(encoding="utf-8").splitlines())
    known = [row for row in rows if row["answers"] and row["file"] not in missing]
    kept = [row for row in known if row["half"] == "open"]
    return [(row["question"], partial(_answers, row)) for row in kept]


def _answers(row: dict[str, Any], found: Document) -> bool:
    return is_right(found.page_content, row)


def nq_open(index: Index, pool: int | None) -> list[Question]:
    """Index the first ``pool`` gold passages of NQ-open and return their questions."""
    rows = list(lines(DATA / "nq_open_oracle_2655.jsonl.gz"))[:pool]
    return _pooled(index, [(row["question"], row["ctxs"], row["ctxs"]) for row in rows])


def popqa(index: Index, pool: int | None) -> list[Question]:
    """Index the paragraphs of the first ``pool`` rows of PopQA and return their questions."""
    rows = list(lines(DATA / "popqa_dev_741.jsonl"))[:pool]
    return _pooled(
        index,
        [
            (
                row["question"],
                row["paragraphs"],
                [p for p in row["paragraphs"] if p["is_supporting"]],
            )
            for row in rows
        ],
    )


def _pooled(index: Index, rows: Sequence[tuple[str, Any, Any]]) -> list[Question]:
    passages = {(p["title"], p["text"]) for _, every, _ in rows for p in every}
    index.add(Document(text, metadata={"title": title}) for title, text in sorted(passages))

    def question(asked: str, gold: Any) -> Question:
        texts = {" ".join(p["text"].split()) for p in gold}
        return asked, lambda found: " ".join(found.page_content.split()) in texts

    return [question(asked, gold) for asked, _, gold in rows if gold]


def measure(index: Index, questions: Sequence[Question]) -> dict[str, Any]:
    """Return recall at each depth of each ranking, and the paired differences."""
    hits: dict[tuple[str, int], list[float]] = {}
    for asked, is_hit in questions:
        for ranking in get_args(Ranking):
            found = index.search(asked, max(DEPTHS), ranking=ranking)
            first = next((place for place, d in enumerate(found) if is_hit(d)), len(found) + 99)
            for depth in DEPTHS:
                hits.setdefault((ranking, depth), []).append(float(first < depth))
    figures: dict[str, Any] = {"questions": len(questions), "passages": len(index)}
    for (ranking, depth), values in hits.items():
        figures[f"{ranking}@{depth}"] = _with_ends(values)
        if ranking != "hybrid":
            pairs = zip(hits["hybrid", depth], values, strict=True)
            figures[f"hybrid_minus_{ranking}@{depth}"] = _with_ends([a - b for a, b in pairs])
    return figures


def _sample(questions: list[Question], most: int | None) -> list[Question]:
    return questions if most is None else random.Random(0).sample(questions, most)


def _with_ends(values: Sequence[float]) -> list[float]:
    found = bootstrap_mean(list(values))
    return [round(number, 3) for number in (found.value, found.low, found.high)]


def main() -> None:
    """Measure each corpus in a new index."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["own_documents", "nq_open", "popqa"])
    parser.add_argument("--pool", type=int, help="rows of NQ-open and PopQA; by default all")
    parser.add_argument("--questions", type=int, help="most questions of a set; by default all")
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    corpora: dict[str, Callable[[Index], list[Question]]] = {
        "own_documents": own_documents,
        "nq_open": lambda index: nq_open(index, args.pool),
        "popqa": lambda index: popqa(index, args.pool),
    }
    for name in args.sets:
        begun = time.process_time()
        with tempfile.TemporaryDirectory() as place:
            index = Index(Path(place) / "index")
            questions = corpora[name](index)
            figures[name] = measure(index, _sample(questions, args.questions))
        figures[name]["cpu_seconds"] = round(time.process_time() - begun)
        print(name, json.dumps(figures[name]), flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
