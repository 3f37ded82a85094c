"""Whether runs survive their workers: two workers on one Postgres, one killed, one told to stop.

    python -m benchmarks.serving_load [--runs 1000] [--slots 4] [--postgres URL]

Starts two processes of ``integrations.workers`` on loopback, asks for all runs by HTTP, each twice
under one id, kills one worker (SIGKILL) after a fifth of the runs and tells the other to stop
(SIGTERM) after half; each is started again at once. The model is scripted: a call takes
``CALL_SECONDS``, and the answer names its question. Prints one line of JSON:

lost        runs that did not end in the answer to their question; 0 is what must be
doubled     runs that began more than once, or ended more often than once; 0 is what must be
taken_over  runs that a second worker went on with: those that the killed one held; no more than
            these can make calls again, one each
left        runs that the stopped worker had not ended when it was gone; 0 is what must be
calls       model calls that ended
repeated    of these, calls that the killed worker had made in a node whose result was not yet saved
cut         calls that the killed worker had begun and not ended; they are made again
"""

import argparse
import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg

from benchmarks.graph import PASSAGES, FreeReflectionLLM
from integrations.langgraph_server.services import free_port, postgres
from selfcorrect_rag import create_self_rag
from selfcorrect_rag.prompts import Prompt
from selfcorrect_rag.reflection import RETRIEVAL, TOKENS, Group, Reflection
from selfcorrect_rag.state import Piece, Segment

ROOT = Path(__file__).parents[1]
CALLS = "SERVING_LOAD_CALLS"
"""The variable with the file that every model call is a line of."""
CALL_SECONDS = 0.05
GIVE_UP = 300.0
"""Seconds that all of it may take."""


class CountedLLM(FreeReflectionLLM):
    """Answers each question with its number, in two segments; writes down each call."""

    async def _asegments(self, prompts: Sequence[Prompt], **options: Any) -> list[Segment]:
        text = prompts[0].to_string()
        number = re.findall(r"Question (\d+)", text)[0]
        segments = text.count(f"Answer {number}.")
        step = "decision" if options.get("choose") else f"segment-{segments}"
        _write("begun", number, step)
        await asyncio.sleep(CALL_SECONDS)
        written = self._segments(prompts, **options)
        if step != "decision":
            written = [_answer(one, number, goes_on=segments == 0) for one in written]
        _write("ended", number, step)
        return written


def _answer(segment: Segment, number: str, *, goes_on: bool) -> Segment:
    text = f"Answer {number}."
    segment["text"], segment["pieces"] = text, [Piece(kind="text", text=text)]
    if goes_on:
        logprobs = dict.fromkeys(TOKENS[Group.RETRIEVE], -5.0) | {RETRIEVAL: -0.1}
        segment["next"] = Reflection(
            group=Group.RETRIEVE.value, position=0, token=RETRIEVAL, logprobs=logprobs
        )
        segment["finish_reason"] = "retrieval"
    return segment


def _write(what: str, number: str, step: str) -> None:
    """One line, whole whatever other processes write, and there if this one is killed."""
    file = os.open(os.environ[CALLS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{what} {number} {step}\n".encode())
    finally:
        os.close(file)


def counted() -> dict[str, Any]:
    """The graph that the workers run."""
    return {"self_rag": create_self_rag(CountedLLM(), lambda query: PASSAGES[:2])}


class Process:
    """A worker of its own on a free port of loopback."""

    def __init__(self, address: str, folder: Path, slots: int) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "integrations.workers", "--port", str(port)]
        command += ["--slots", str(slots), "--graphs", "benchmarks.serving_load:counted"]
        environment = os.environ | {
            "POSTGRES_URI": address,
            "PYTHONPATH": str(ROOT),
            CALLS: str(folder / "calls"),
        }
        self.log = folder / f"{port}.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.name = f"{socket.gethostname()}:{self.process.pid}"

    def wait_until_ready(self) -> None:
        for _ in range(600):
            try:
                if httpx.get(f"{self.url}/health/ready").is_success:
                    return
            except httpx.TransportError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise RuntimeError(f"no worker: {self.log.read_text()[-2000:]}")

    def end(self, sign: signal.Signals) -> None:
        self.process.send_signal(sign)
        self.process.wait(timeout=60)


@contextmanager
def _workers(address: str, folder: Path, slots: int) -> Iterator[list[Process]]:
    started: list[Process] = []
    try:
        started += [Process(address, folder, slots) for _ in range(2)]
        for worker in started:
            worker.wait_until_ready()
        yield started
    finally:
        for worker in started:
            worker.process.kill()
            worker.process.wait()


def measured(address: str, runs: int, slots: int) -> dict[str, Any]:
    """The figures of one load; see the module."""
    with tempfile.TemporaryDirectory() as name, _workers(address, Path(name), slots) as workers:
        folder, began = Path(name), time.perf_counter()
        with httpx.Client() as client:
            for number in range(runs):
                given = {"question": f"Question {number}?"}
                asked = {"graph": "self_rag", "id": f"run-{number}", "input": given}
                for worker in workers:  # as a client does that heard no answer from the first
                    client.post(f"{worker.url}/runs", json=asked).raise_for_status()
        with psycopg.connect(address, autocommit=True) as database:
            _wait_for(database, runs // 5, began)
            workers[0].end(signal.SIGKILL)
            workers.append(Process(address, folder, slots))
            _wait_for(database, runs // 2, began)
            workers[1].end(signal.SIGTERM)
            left = _left(database, workers[1])
            workers.append(Process(address, folder, slots))
            _wait_for(database, runs, began)
            seconds = time.perf_counter() - began
            return {
                "runs": runs,
                "slots": slots,
                "seconds": round(seconds, 1),
                "runs_a_second": round(runs / seconds, 1),
                "left": left,
                **_ended(database, runs),
                **_called(folder / "calls"),
            }


def _wait_for(database: psycopg.Connection[Any], ended: int, began: float) -> None:
    while time.perf_counter() - began < GIVE_UP:
        row = database.execute("SELECT count(*) FROM runs WHERE ended_at IS NOT NULL").fetchone()
        if row and row[0] >= ended:
            return
        time.sleep(0.1)
    raise RuntimeError(f"{ended} runs have not ended within {GIVE_UP:g} s")


def _left(database: psycopg.Connection[Any], stopped: Process) -> int:
    """Runs that a worker was the last to take, and that have not ended."""
    row = database.execute(
        "SELECT count(*) FROM runs WHERE ended_at IS NULL AND worker = %s", (stopped.name,)
    ).fetchone()
    return int(row[0]) if row else 0


def _ended(database: psycopg.Connection[Any], runs: int) -> dict[str, int]:
    rows = database.execute("SELECT id, status, output, attempts FROM runs").fetchall()
    right = sum(
        status == "done" and output["answer"] == "Answer {0}. Answer {0}.".format(name[4:])
        for name, status, output, _ in rows
    )
    begun = database.execute(
        "SELECT thread_id, count(*) FROM checkpoints WHERE metadata->>'source' = 'input'"
        " GROUP BY thread_id"
    ).fetchall()
    return {
        "lost": runs - right,
        "doubled": sum(times > 1 for _, times in begun) + len(rows) - runs,
        "taken_over": sum(attempts > 1 for *_, attempts in rows),
    }


def _called(calls: Path) -> dict[str, int]:
    lines = Counter(calls.read_text().splitlines())
    ended = {line: n for line, n in lines.items() if line.startswith("ended")}
    begun = sum(n for line, n in lines.items() if line.startswith("begun"))
    return {
        "calls": sum(ended.values()),
        "repeated": sum(ended.values()) - len(ended),
        "cut": begun - sum(ended.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000, metavar="N")
    parser.add_argument("--slots", type=int, default=4, metavar="N")
    parser.add_argument("--postgres", metavar="URL", help="an empty database; default: one made")
    args = parser.parse_args()
    with ExitStack() as stack:
        address = args.postgres or stack.enter_context(postgres())
        figures = measured(address, args.runs, args.slots)
    print(json.dumps({"benchmark": "serving_load", **figures}))


if __name__ == "__main__":
    main()
