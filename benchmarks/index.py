"""What the index finds and what it costs, on real passages.

    python benchmarks/index.py

Indexes the 2,655 gold passages of NQ-open (nq_open_oracle_2655.jsonl.gz, in the folder
SELFCORRECT_DATA, by default ../shared/data beside the checkout), once with MiniLM and once with
BM25, and asks every question. Ends in one line of JSON, for each of the two:

recall_at_5        questions with a part of their gold passage among the first five; to reach:
                   MiniLM 0.988, BM25 0.908
passages           in the index, after cutting and without duplicates
index_s            seconds to read, cut, embed and write them
passages_per_s     in that time
embedding_share    of that time, spent in the embedder; 1 is the ceiling
rerun_s            seconds of a second run over the unchanged file
query_ms           median milliseconds for one question, its embedding included
"""

import gzip
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from selfcorrect_rag.search import BM25Index, ChromaIndex, Index, MiniLM, index_paths
from selfcorrect_rag.search.loading import tidy

DATA = Path(os.environ.get("SELFCORRECT_DATA", Path(__file__).parents[2] / "shared" / "data"))
POOL = DATA / "nq_open_oracle_2655.jsonl.gz"
K = 5


def main() -> None:
    if not POOL.exists():
        sys.exit(f"{POOL.name} is not in {DATA}: set SELFCORRECT_DATA to the folder that holds it")
    with tempfile.TemporaryDirectory() as folder:
        embeddings = Timed()
        embeddings.embed_query("The model is loaded before the clock starts.")
        minilm = measure(ChromaIndex(Path(folder, "minilm"), embeddings))
        minilm["embedding_share"] = round(embeddings.seconds / minilm["index_s"], 3)
        bm25 = measure(BM25Index(Path(folder, "bm25")))
    print(json.dumps({"minilm": minilm, "bm25": bm25}))


def measure(index: Index) -> dict[str, Any]:
    started = time.perf_counter()
    report = index_paths([POOL], index)
    indexed = time.perf_counter()
    index_paths([POOL], index)
    rerun = time.perf_counter()
    retriever = index.as_retriever(K)
    retriever.invoke("The first question pays for what is loaded late.")
    hits = 0
    milliseconds = []
    with gzip.open(POOL, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    for row in rows:
        asked = time.perf_counter()
        found = retriever.invoke(row["question"])
        milliseconds.append(1000 * (time.perf_counter() - asked))
        hits += any(is_part(document, row["ctxs"][0]) for document in found)
    return {
        "recall_at_5": round(hits / len(rows), 4),
        "questions": len(rows),
        "passages": report.added,
        "index_s": round(indexed - started, 2),
        "passages_per_s": round(report.added / (indexed - started), 1),
        "rerun_s": round(rerun - indexed, 3),
        "query_ms": round(statistics.median(milliseconds), 2),
    }


def is_part(found: Document, gold: dict[str, str]) -> bool:
    return found.metadata["title"] == gold["title"] and found.page_content in tidy(gold["text"])


class Timed(Embeddings):
    """MiniLM with a clock."""

    def __init__(self) -> None:
        self.minilm = MiniLM()
        self.name = MiniLM.name
        self.seconds = 0.0

    def embed_query(self, text: str) -> list[float]:
        return self.minilm.embed_query(text)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        started = time.perf_counter()
        vectors = self.minilm.embed_documents(texts)
        self.seconds += time.perf_counter() - started
        return vectors


if __name__ == "__main__":
    main()
