"""Self-RAG with the nano generator on real questions that it never saw.

    SELFCORRECT_DATA=../shared/data python -m benchmarks.popqa [--rows N] [--model NAME]

Reads popqa_dev_741.jsonl, indexes its pooled paragraphs into Chroma and asks each question.
Prints progress, then one line of JSON. ``accuracy``: a gold answer stands in the answer
(lower-cased, as words). ``accuracy_answer_retrieved``: the same over the questions for which a
gold answer stands in one of the five passages. ``first_passage``: the candidate for the top
passage in place of the one that the critique chose. 95 % intervals are Wilson's.
"""

import argparse
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.nano import load_generator
from selfcorrect_rag.nano.evaluate import contains
from selfcorrect_rag.search import ChromaIndex

DATA = Path(os.environ.get("SELFCORRECT_DATA", Path(__file__).parents[2] / "shared" / "data"))


def wilson(hits: int, of: int) -> list[float]:
    """95 % interval of a proportion."""
    if not of:
        return [0.0, 1.0]
    p, z = hits / of, 1.96
    middle = p + z * z / (2 * of)
    spread = z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return [round((middle + sign * spread) / (1 + z * z / of), 3) for sign in (-1, 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, help="only the first N questions")
    parser.add_argument("--model", help="another generator than the nano one")
    args = parser.parse_args()
    file = DATA / "popqa_dev_741.jsonl"
    if not file.exists():
        print(f"skipped: {file} is not there; set SELFCORRECT_DATA")
        return
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    paragraphs = [
        Document(paragraph["text"], metadata={"title": paragraph["title"]})
        for row in rows
        for paragraph in row["paragraphs"]
    ]
    rows = rows[: args.rows]
    llm = TransformersReflectionLLM.from_pretrained(args.model) if args.model else load_generator()
    settings: dict[str, Any] = {"mode": "always", "depth": 1, "segment_tokens": 50}
    counts = dict.fromkeys(("right", "retrieved", "right_retrieved", "first", "cited"), 0)
    with tempfile.TemporaryDirectory() as folder:
        index = ChromaIndex(folder)
        passages = index.add(paragraphs)
        graph = create_self_rag(llm, index.as_retriever())
        for done, row in enumerate(rows, start=1):
            result = graph.invoke({"question": row["question"]}, context=settings)  # type: ignore[arg-type]
            right = contains(result["answer"], row["answers"])
            found = any(contains(p.page_content, row["answers"]) for p in result["passages"])
            first = next(c for c in result["candidates"] if c["passage"] == 0)
            counts["right"] += right
            counts["retrieved"] += found
            counts["right_retrieved"] += right and found
            counts["first"] += contains(first["text"], row["answers"])
            counts["cited"] += bool(result["citations"])
            if done % 100 == 0:
                print(f"{done} of {len(rows)}: {counts}", flush=True)
    report = {
        "benchmark": "popqa",
        "questions": len(rows),
        "passages": passages,
        "accuracy": round(counts["right"] / len(rows), 3),
        "accuracy_interval": wilson(counts["right"], len(rows)),
        "answer_retrieved": round(counts["retrieved"] / len(rows), 3),
        "accuracy_answer_retrieved": round(counts["right_retrieved"] / counts["retrieved"], 3),
        "interval": wilson(counts["right_retrieved"], counts["retrieved"]),
        "first_passage": round(counts["first"] / len(rows), 3),
        "cited": round(counts["cited"] / len(rows), 3),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
