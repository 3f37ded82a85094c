"""What indexing takes in memory, for ten times the text.

    python -m benchmarks.index_memory [--mb 1000] [--kinds bm25,chroma] [--dimensions 384]
                                        [--chunk-words 120]

Makes text of random words in a temporary folder, a tenth of ``--mb`` and all of it, a fifth of
each in one file and the rest in files of 10 kB, and indexes both, each in a process of its own.
Chroma gets vectors that cost nothing to make: random, seeded by the text. What the first search
takes is measured apart, in a fresh process: BM25 computes its scores there. Ends in one line of
JSON; for each kind and size:

files, passages    in the index
index_s            seconds of the run
start_mb           peak memory of the process (RSS) when the empty index is open
index_mb           peak memory when all is indexed
search_mb          peak memory of a process that opens the index and searches once
bytes_per_passage  growth of index_mb from the small size to the large one, by passage
"""

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings

from selfcorrect_rag.search import BM25Index, ChromaIndex, Index, index_paths

SMALL_FILE = 10_000


class RandomVectors(Embeddings):
    """No model: a text's vector is drawn with the text as seed."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions

    def embed_query(self, text: str) -> list[float]:
        generator = random.Random(text)
        return [generator.random() - 0.5 for _ in range(self.dimensions)]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--kinds", default="bm25,chroma")
    parser.add_argument("--dimensions", type=int, default=384)
    parser.add_argument("--chunk-words", type=int, default=120)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        action, kind, folder = args.child
        work = indexed if action == "index" else searched
        print(json.dumps(work(opened(kind, Path(folder, kind), args.dimensions), folder, args)))
        return
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for mb in (args.mb // 10, args.mb):
            write_text(Path(folder, "text"), mb)
            for kind in args.kinds.split(","):
                results[f"{kind} {mb} MB"] = child("index", kind, folder, args) | child(
                    "search", kind, folder, args
                )
                print(kind, mb, results[f"{kind} {mb} MB"], file=sys.stderr)
                shutil.rmtree(Path(folder, kind))
            shutil.rmtree(Path(folder, "text"))
    for kind in args.kinds.split(","):
        small, large = (results[f"{kind} {mb} MB"] for mb in (args.mb // 10, args.mb))
        growth = (large["index_mb"] - small["index_mb"]) * 1e6
        large["bytes_per_passage"] = round(growth / (large["passages"] - small["passages"]))
    print(json.dumps(results))


def write_text(folder: Path, mb: int) -> None:
    """Sentences of 12 words of a vocabulary of 50,000, the first words the most frequent."""
    folder.mkdir()
    generator = random.Random(mb)
    words = ["".join(generator.choices("abcdefghijklmnopqrst", k=n % 9 + 2)) for n in range(50_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    drawn = generator.choices(words, weights, k=1_200_000)
    sentences = [" ".join(drawn[i : i + 12]) + ".\n" for i in range(0, len(drawn), 12)]

    def text(size: int) -> str:
        return "".join(generator.choices(sentences, k=size // 60))[:size]

    with (folder / "long.txt").open("w") as file:
        for _ in range(mb // 5):
            file.write(text(10**6))
    for number in range(mb * 4 // 5 * 10**6 // SMALL_FILE):
        under = folder / f"{number // 1000}"
        under.mkdir(exist_ok=True)
        (under / f"{number}.txt").write_text(text(SMALL_FILE))


def child(action: str, kind: str, folder: str, args: argparse.Namespace) -> dict[str, Any]:
    options = ["--dimensions", str(args.dimensions), "--chunk-words", str(args.chunk_words)]
    command = [sys.executable, __file__, *options, "--child", action, kind, folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def opened(kind: str, folder: Path, dimensions: int) -> Index:
    return ChromaIndex(folder, RandomVectors(dimensions)) if kind == "chroma" else BM25Index(folder)


def indexed(index: Index, folder: str, args: argparse.Namespace) -> dict[str, Any]:
    start, started = peak_mb(), time.perf_counter()
    report = index_paths([Path(folder, "text")], index, chunk_words=args.chunk_words)
    return {
        "files": report.files,
        "passages": report.passages,
        "index_s": round(time.perf_counter() - started, 1),
        "start_mb": start,
        "index_mb": peak_mb(),
    }


def searched(index: Index, folder: str, args: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    index.search("the words of a question")
    return {"search_s": round(time.perf_counter() - started, 1), "search_mb": peak_mb()}


def peak_mb() -> int:
    """Peak resident memory of this process in megabytes (Linux counts in KiB, macOS in bytes)."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 10**6


if __name__ == "__main__":
    main()
