"""Recall of an index by words, by vectors and by both: ``python -m benchmarks.retrieval``.

Three corpora: the thirty files of benchmarks/own_documents (a hit is a passage with the answer),
and the pooled passages of NQ-open and PopQA in ../shared/data (a hit is a passage that the row
marks as supporting). Each figure has its 95 % bootstrap interval; "hybrid_minus_..." are paired
differences. ``passages_per_cpu_s`` is the speed of indexing. Ends in one line of JSON.
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

from benchmarks import documents, share
from benchmarks.own_documents.files import QUESTIONS, is_right, write_texts
from reader_training.rows import DATA, lines, tidy
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
    known = [row for row in lines(QUESTIONS) if row["answers"] and row["file"] not in missing]
    return [(r["question"], partial(_states, r)) for r in known if r["half"] == "open"]


def _states(row: dict[str, Any], found: Document) -> bool:
    return is_right(found.page_content, row)


def pooled(file: str, passages: str, index: Index) -> list[Question]:
    """Index all passages of a file, and return its questions with a passage that supports one."""
    rows = list(lines(DATA / file))
    index.add(documents(sorted({(p["title"], p["text"]) for row in rows for p in row[passages]})))
    return [
        (row["question"], partial(_is_one_of, gold))
        for row in rows
        if (gold := {tidy(p["text"]) for p in row[passages] if p.get("is_supporting", True)})
    ]


def _is_one_of(texts: set[str], found: Document) -> bool:
    return tidy(found.page_content) in texts


CORPORA: dict[str, Callable[[Index], list[Question]]] = {
    "own_documents": own_documents,
    "nq_open": partial(pooled, "nq_open_oracle_2655.jsonl.gz", "ctxs"),
    "popqa": partial(pooled, "popqa_dev_741.jsonl", "paragraphs"),
}


def measure(index: Index, questions: Sequence[Question]) -> dict[str, Any]:
    """Return recall at each depth of each ranking, and the paired differences."""
    hits: dict[tuple[str, int], list[float]] = {}
    for asked, is_hit in questions:
        for ranking in get_args(Ranking):
            found = [is_hit(d) for d in index.search(asked, max(DEPTHS), ranking=ranking)]
            for depth in DEPTHS:
                hits.setdefault((ranking, depth), []).append(any(found[:depth]))
    figures: dict[str, Any] = {"questions": len(questions), "passages": len(index)}
    for (ranking, depth), values in hits.items():
        figures[f"{ranking}@{depth}"] = share(values)
        if ranking != "hybrid":
            pairs = zip(hits["hybrid", depth], values, strict=True)
            figures[f"hybrid_minus_{ranking}@{depth}"] = share(a - b for a, b in pairs)
    return figures


def main() -> None:
    """Measure each corpus in a new index."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--questions", type=int, help="maximum of a set; by default all")
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    for name in args.sets:
        with tempfile.TemporaryDirectory() as place:
            index, started = Index(Path(place) / "index"), time.process_time()
            questions = CORPORA[name](index)
            speed = len(index) / (time.process_time() - started)
            count = min(args.questions or len(questions), len(questions))
            found = measure(index, random.Random(0).sample(questions, count))
            figures[name] = {"passages_per_cpu_s": round(speed, 1), **found}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
