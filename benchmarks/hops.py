"""Measure questions of two hops: ``python -m benchmarks.hops``.

The embedded reader answers by in-context RALM from the five best passages of BM25, and by Self-RAG
from these, from the ten best, and from five of each hop (`selfcorrect_rag.search.two_hop`). It
never refuses. Two sets of ../shared/data: HotpotQA and MuSiQue together, splits 2 and 3, in their
passages, PopQA's and 6,119 of Wikipedia; questions of 2WikiMultihopQA's kind, split 3, in theirs
and the same 6,119. ``--development`` asks the other splits, on which the rule was chosen. Ends in
one line of JSON: of each set the mean match of each method with its 95 % bootstrap interval and its
model calls a question (reading for bridges is one), and the paired differences.
"""

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import documents, share
from benchmarks.evidence import RememberingReader
from reader_training.rows import DATA, encyclopedia, lines, pages, split_of
from selfcorrect_rag.evaluation.methods import open_method, read_spec
from selfcorrect_rag.evaluation.report import score_run
from selfcorrect_rag.evaluation.runner import run_methods
from selfcorrect_rag.evaluation.statistics import compare_all
from selfcorrect_rag.evaluation.tasks import Question
from selfcorrect_rag.search import Index
from selfcorrect_rag.search.two_hop import ReaderBridges, two_hop
from selfcorrect_rag.serving import Parts, ServingConfig

METHODS = {
    "ralm": ("one_hop", "instruct_rag:mode=ralm,passages=5"),
    "self_rag": ("one_hop", "self_rag:passages=5"),
    "self_rag_ten": ("one_hop", "self_rag:passages=10"),
    "self_rag_two_hop": ("two_hop", "self_rag:passages=10"),
}
"""The retriever and the specification of each."""
PAIRS = [("self_rag_two_hop", other) for other in ("ralm", "self_rag", "self_rag_ten")]


def read_sets(development: bool) -> dict[str, tuple[list[Question], list[tuple[str, str]]]]:
    """Return the questions of each set that are not for yes or no, and its pool of passages."""
    rows = list(lines(DATA / "multihop_retrieved_dev.jsonl.gz"))
    two_wiki = [(row["question"], row["answers"]) for row in rows]
    theirs = [(page["title"], page["text"]) for row in rows for page in row["passages"]]
    hotpot, musique = (
        json.loads((DATA / f"{name}_train100.json").read_text("utf-8"))
        for name in ("hotpotqa", "musique")
    )
    mixed = [
        (row["question"], [row["answer"], *row.get("answer_aliases", ())])
        for row in [*hotpot, *musique]
    ]
    measured = {"hotpotqa_musique": {2, 3}, "2wiki": {3}}
    found = {"hotpotqa_musique": (mixed, pages()), "2wiki": (two_wiki, theirs)}
    return {
        name: (
            [
                Question(f"{name}-{number}", question, tuple(answers))
                for number, (question, answers) in enumerate(asked)
                if split_of(question) in ({0, 1} if development else measured[name])
                and not {"yes", "no"} & set(answers)
            ],
            list(dict.fromkeys([*pool, *encyclopedia()])),
        )
        for name, (asked, pool) in found.items()
    }


def run_set(questions: list[Question], pool: list[tuple[str, str]], folder: Path) -> Any:
    """Return the figures of a set."""
    index, reader = Index(folder / "index", "bm25"), RememberingReader.load()
    index.add(documents(pool))
    found: dict[str, Any] = {"one_hop": index.as_retriever(10)}
    found["two_hop"] = two_hop(found["one_hop"], ReaderBridges(reader))
    methods = []
    for name, (retriever, spec) in METHODS.items():
        parts = Parts(ServingConfig(index=folder, web="none", answer_above=0.0))
        parts.retriever, parts.reader = found[retriever], reader
        methods.append(open_method(read_spec(f"{name}={spec}"), parts))
    run = run_methods(questions, methods, folder / "run", concurrency=1)
    scored = score_run(run, "match")
    figures: dict[str, Any] = {"questions": len(questions), "passages": len(pool)}
    for name, rows in scored.items():
        calls = sum(o.model_calls + name.endswith("two_hop") for o in run.of(name))
        match = share(value for value in rows.values() if value is not None)
        figures[name] = [*match, round(calls / len(questions), 2)]
    pairs = {
        f"{pair.first} minus {pair.second}": [pair.difference, *pair.interval]
        for pair in compare_all(scored, PAIRS)
    }
    return {**figures, "pairs": pairs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--development", action="store_true", help="the splits for development")
    parser.add_argument("--limit", type=int, help="questions of a set, the first ones")
    args = parser.parse_args()
    figures = {}
    for name, (questions, pool) in read_sets(args.development).items():
        with TemporaryDirectory() as folder:
            figures[name] = run_set(questions[: args.limit], pool, Path(folder))
        print(json.dumps({name: figures[name]}), file=sys.stderr, flush=True)
    print(json.dumps({"benchmark": "hops", **figures}))


if __name__ == "__main__":
    main()
