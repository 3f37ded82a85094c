"""Self-RAG with the nano generator on real questions.

    SELFCORRECT_DATA=../shared/data python -m benchmarks.real_text [SET ...] [--rows N]
        [--model DIR]

A set is popqa (popqa_dev_741.jsonl), nq (the one in five of nq_open_oracle_2655.jsonl.gz that no
nano model learns from) or hotpotqa (hotpotqa_train100.json, without its questions of yes or no);
all by default. The passages of all
its questions are pooled and indexed into Chroma, and each question is asked with five of them.
Prints progress, then a line of JSON for each set. ``accuracy``: a gold answer stands in the answer
(lower-cased, as words). ``accuracy_answer_retrieved``: the same over the questions for which a gold
answer stands in one of the five passages. ``first_passage`` is plain RAG with the same model: what
it wrote to the top passage, in place of the candidate that the critique chose; ``above_first`` is
how much more often the chosen one is right. 95 % intervals are Wilson's, and of paired differences
the normal one.
"""

import argparse
import gzip
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.documents import Document

from nano_training.evaluate_generator import contains
from nano_training.real_text import is_held_out
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.commands.training_options import count
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.nano import generator_path
from selfcorrect_rag.search import ChromaIndex

DATA = Path(os.environ.get("SELFCORRECT_DATA", Path(__file__).parents[2] / "shared" / "data"))


class Asked(NamedTuple):
    """A question with its answers, and passages for the pool."""

    question: str
    answers: list[str]
    passages: list[Document]


class Outcome(NamedTuple):
    """What came of a question."""

    right: bool
    first: bool
    """Right by the first passage alone."""
    retrieved: bool
    """An answer stands in one of the five passages."""
    cited: bool


def lines(text: str, passages: str) -> Iterator[Asked]:
    """Rows as JSON lines, with their passages under the key ``passages``."""
    for row in map(json.loads, text.splitlines()):
        found = [_passage(p["title"], p["text"]) for p in row[passages]]
        yield Asked(row["question"], row["answers"], found)


def typed(text: str) -> Iterator[Asked]:
    """Of questions that somebody typed, those kept for this."""
    return (asked for asked in lines(text, "ctxs") if is_held_out(asked.question))


def hotpotqa(text: str) -> Iterator[Asked]:
    """Without its questions of yes or no, words that stand in many an answer."""
    for row in json.loads(text):
        if row["answer"] in ("yes", "no"):
            continue
        found = [_passage(title, "".join(sentences)) for title, sentences in row["context"]]
        yield Asked(row["question"], [row["answer"]], found)


SETS: dict[str, tuple[str, Callable[[str], Iterator[Asked]]]] = {
    "popqa": ("popqa_dev_741.jsonl", partial(lines, passages="paragraphs")),
    "nq": ("nq_open_oracle_2655.jsonl.gz", typed),
    "hotpotqa": ("hotpotqa_train100.json", hotpotqa),
}


def _passage(title: str, text: str) -> Document:
    return Document(text, metadata={"title": title})


def wilson(hits: int, of: int) -> list[float]:
    """95 % interval of a proportion."""
    if not of:
        return [0.0, 1.0]
    p, z = hits / of, 1.96
    middle = p + z * z / (2 * of)
    spread = z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return [round((middle + sign * spread) / (1 + z * z / of), 3) for sign in (-1, 1)]


def above(pairs: Sequence[tuple[bool, bool]]) -> list[float]:
    """By how much the first of each pair is more often true, and the 95 % interval of that."""
    differences = [one - other for one, other in pairs]
    mean = sum(differences) / len(pairs)
    spread = 1.96 * math.sqrt(sum((d - mean) ** 2 for d in differences)) / len(pairs)
    return [round(value, 3) for value in (mean, mean - spread, mean + spread)]


def asked_all(name: str, rows: Sequence[Asked], llm: TransformersReflectionLLM) -> list[Outcome]:
    settings: Any = {"mode": "always", "form": "short", "segment_tokens": 50}
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        index = ChromaIndex(folder)
        index.add([passage for row in rows for passage in row.passages])
        graph = create_self_rag(llm, index.as_retriever())
        for row in rows:
            result = graph.invoke({"question": row.question}, context=settings)
            first = next(c for c in result["candidates"] if c["passage"] == 0)
            outcomes.append(
                Outcome(
                    contains(result["answer"], row.answers),
                    contains(first["text"], row.answers),
                    any(contains(p.page_content, row.answers) for p in result["passages"]),
                    bool(result["citations"]),
                )
            )
            if len(outcomes) % 100 == 0:
                right = sum(outcome.right for outcome in outcomes)
                print(f"{name}: {right} right of {len(outcomes)}", flush=True)
    return outcomes


def report(name: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    count, right = len(outcomes), sum(outcome.right for outcome in outcomes)
    retrieved = [outcome for outcome in outcomes if outcome.retrieved]
    found = sum(outcome.right for outcome in retrieved)
    return {
        "benchmark": "real_text",
        "set": name,
        "questions": count,
        "accuracy": round(right / count, 3),
        "accuracy_interval": wilson(right, count),
        "first_passage": round(sum(outcome.first for outcome in outcomes) / count, 3),
        "above_first": above([(outcome.right, outcome.first) for outcome in outcomes]),
        "answer_retrieved": round(len(retrieved) / count, 3),
        "accuracy_answer_retrieved": round(found / max(1, len(retrieved)), 3),
        "interval": wilson(found, len(retrieved)),
        "cited": round(sum(outcome.cited for outcome in outcomes) / count, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sets", nargs="*", metavar="SET", help="popqa, nq, hotpotqa; or all")
    parser.add_argument("--rows", type=count, help="only the first N questions, and their passages")
    parser.add_argument("--model", default=generator_path(), help="another than the nano generator")
    args = parser.parse_args()
    if unknown := set(args.sets) - SETS.keys():
        parser.error(f"no set is called {', '.join(unknown)}; they are {', '.join(SETS)}")
    llm = TransformersReflectionLLM.from_pretrained(args.model)
    for name in args.sets or SETS:
        file, read = SETS[name]
        if not (DATA / file).exists():
            print(f"{name} skipped: {DATA / file} is not there; set SELFCORRECT_DATA")
            continue
        opened: Any = gzip.open if file.endswith(".gz") else open
        with opened(DATA / file, "rt", encoding="utf-8") as lines:
            rows = list(read(lines.read()))[: args.rows]
        print(json.dumps(report(name, asked_all(name, rows, llm))), flush=True)


if __name__ == "__main__":
    main()
