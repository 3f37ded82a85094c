"""What bulk runs take beside the model: rows a second, and memory for ten times the questions.

    python -m benchmarks.bulk [--rows 100000] [--actors 2] [--on local,ray] [--form jsonl]

Asks a scripted model in place of a graph, which answers at once with 400 characters and three
citations, a tenth of ``--rows`` questions and then all of them, each run in a process of its own.
Ends in one line of JSON; for each engine and size:

rows_s          rows a second, from the first that are finished, which do not count, to the last
seconds         of the whole run; on Ray with its start
driver_mb       peak memory of the process that gathers (RSS)
actor_mb        on Ray, peak memory of the largest actor (RSS)
store_mb        on Ray, peak of what its object store holds of shared memory
growth_mb       of driver_mb, from the small size to the large one
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableLambda

ANSWER = "The mill was built in 1815, and burned down twice. " * 8
CITATION = {"number": 1, "title": "The mill", "source": "mill.md", "quote": ANSWER[:50]}


async def model(given: dict[str, Any]) -> dict[str, Any]:
    """Answer at once."""
    return {"question": given["question"], "answer": ANSWER, "citations": [CITATION] * 3}


scripted = RunnableLambda(model)


def measure(on: str, rows: int, actors: int, form: Any) -> dict[str, Any]:
    """One run, in this process."""
    from selfcorrect_rag.bulk import Cluster, batch_questions
    from selfcorrect_rag.bulk.finished import Finished

    peaks = _Peaks()
    first = last = 0.0
    later = rows

    def show(finished: Finished) -> None:
        nonlocal first, last, later
        last = time.monotonic()
        if not first:
            first, later = last, rows - finished.rows

    with tempfile.TemporaryDirectory() as folder:
        questions = Path(folder) / "questions.jsonl"
        with questions.open("w", encoding="utf-8") as file:
            for n in range(rows):
                file.write(json.dumps({"question": f"When was mill number {n} built?"}) + "\n")
        if on == "ray":
            peaks.start()
        summary = batch_questions(
            questions,
            "benchmarks.bulk:scripted",
            Path(folder) / "out",
            form=form,
            cluster=Cluster(actors=actors) if on == "ray" else None,
            on_finished=show,
        )
        peaks.stop()
    assert (summary.rows, summary.failed) == (rows, 0), summary
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {
        "rows": rows,
        "rows_s": round(later / (last - first)),
        "seconds": round(summary.seconds, 1),
        "driver_mb": round(peak),
    }
    return found | ({"actor_mb": peaks.actor, "store_mb": peaks.store} if on == "ray" else {})


class _Peaks:
    """Watches the processes of Ray that this one started."""

    def __init__(self) -> None:
        self.actor = self.store = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()

    def _watch(self) -> None:
        while not self._ends.wait(0.5):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    name = (process / "cmdline").read_bytes()
                    status = (process / "status").read_text(encoding="utf-8")
                except OSError:
                    continue
                if b"JournalingActor" in name:
                    self.actor = max(self.actor, _mb(status, "VmHWM"))
                elif b"raylet" in name.split(b"\0")[0]:
                    self.store = max(self.store, _mb(status, "RssShmem"))


def _mb(status: str, field: str) -> int:
    found = (line.split()[1] for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(next(found, "0")) // 1024


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--on", default="local,ray")
    parser.add_argument("--form", choices=["jsonl", "parquet"], default="jsonl")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.on, args.rows, args.actors, args.form)))
        return
    result: dict[str, Any] = {"actors": args.actors, "cores": os.cpu_count()}
    for on in args.on.split(","):
        for rows in (args.rows // 10, args.rows):
            own = [sys.executable, "-m", "benchmarks.bulk", "--one", "--on", on]
            given = ["--rows", str(rows), "--actors", str(args.actors), "--form", args.form]
            run = subprocess.run([*own, *given], stdout=subprocess.PIPE, text=True, check=True)
            result.setdefault(on, []).append(json.loads(run.stdout.splitlines()[-1]))
        small, large = result[on]
        result[f"{on}_growth_mb"] = large["driver_mb"] - small["driver_mb"]
    print(json.dumps(result))


if __name__ == "__main__":
    main()
