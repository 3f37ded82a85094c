"""Runs of the local page: live ones, each in a task, and past ones in a SQLite file."""

import asyncio
import json
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from selfcorrect_rag.errors import SelfCorrectError, describe_error, one_line
from selfcorrect_rag.serving.config import BadOption
from selfcorrect_rag.ui.page import json_value

MAX_LIVE = 16
"""Runs at a time, waiting ones among them."""
MAX_RUNS, MAX_SHOWN = 2_000, 100
"""Past runs that are kept, the newest ones; and those of a list."""
STOPPED = "stopped by hand; steps that were finished are kept"
_TABLE = """
CREATE TABLE IF NOT EXISTS finished_runs (
    id TEXT PRIMARY KEY, asked REAL NOT NULL, words TEXT NOT NULL, run TEXT NOT NULL,
    result TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_asked ON finished_runs (asked);
"""


@dataclass
class PastRun:
    """A run that is over."""

    id: str
    question: str
    graph: str
    """As settings name it, such as ``self_rag``."""
    source: str
    """The name of the index."""
    settings: dict[str, Any]
    """The settings that were set."""
    asked: float = field(default_factory=time.time)
    """When, in seconds since 1970."""
    error: str = ""
    """Why it failed or stopped, on one line."""
    result: dict[str, Any] = field(default_factory=dict)
    """As ``ask --json`` prints it; in lists only the ``answer``."""


class RunStore:
    """The runs in a file, private to the user; every call opens it anew, so that threads and
    servers may share it. BadOption if it cannot be written, or is not a database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            with self._open() as file:
                file.execute("PRAGMA journal_mode=WAL")  # readers beside a writer
                file.executescript(_TABLE)
        except (OSError, sqlite3.Error) as error:
            raise BadOption(f"--runs {path}: {error}") from error

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        file = sqlite3.connect(self.path, timeout=10)  # while another server writes
        try:
            with file:
                yield file
        finally:
            file.close()

    def add(self, run: PastRun) -> None:
        """Add a run, and delete the oldest ones beyond :data:`MAX_RUNS`."""
        answer = str(run.result.get("answer") or "")
        head = {each.name: getattr(run, each.name) for each in fields(PastRun)}
        head["result"] = {"answer": answer}
        words = f"{run.question} {answer}"
        row = (run.id, run.asked, words, json.dumps(head), json.dumps(run.result))
        with self._open() as file:
            file.execute("INSERT OR REPLACE INTO finished_runs VALUES (?, ?, ?, ?, ?)", row)
            file.execute(
                "DELETE FROM finished_runs WHERE id IN "
                "(SELECT id FROM finished_runs ORDER BY asked DESC LIMIT -1 OFFSET ?)",
                (MAX_RUNS,),
            )

    def get(self, id: str) -> PastRun | None:
        """Return a run with its result."""
        with self._open() as file:
            query = "SELECT run, result FROM finished_runs WHERE id = ?"
            row = file.execute(query, (id,)).fetchone()
        return row and PastRun(**{**json.loads(row[0]), "result": json.loads(row[1])})

    def find(self, text: str = "") -> list[PastRun]:
        """Return the newest runs whose question or answer has ``text``, without their results."""
        query = (
            "SELECT run FROM finished_runs WHERE instr(lower(words), lower(?)) "
            "ORDER BY asked DESC LIMIT ?"
        )
        with self._open() as file:
            return [PastRun(**json.loads(run)) for (run,) in file.execute(query, (text, MAX_SHOWN))]

    def delete(self, id: str) -> None:
        """Delete a run, if it exists."""
        with self._open() as file:
            file.execute("DELETE FROM finished_runs WHERE id = ?", (id,))


@dataclass(eq=False)
class LiveRun(PastRun):
    """A run that goes on; its result is as far as it is known."""

    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The steps that have begun, by task: ``name``, and ``seconds`` if it has ended."""
    text: str = ""
    """The answer, as far as it was streamed."""
    pause: dict[str, Any] | None = None
    """The search that waits for a person's approval: ``query`` and ``source``."""
    reply: "asyncio.Future[bool | str] | None" = None
    task: "asyncio.Task[None] | None" = None


class Runs:
    """Starts runs, and stores them when they are over. ``open_graph`` returns the graph of a name,
    settings and a checkpointer, and is called in a thread; ``source`` names the index."""

    def __init__(self, open_graph: Callable[..., Any], store: RunStore, source: str) -> None:
        self._open_graph, self._store, self._source = open_graph, store, source
        self.live: dict[str, LiveRun] = {}
        # A separate thread: runs that wait for models leave the pages' threads alone.
        self._opener = ThreadPoolExecutor(1, "opening")

    def start(self, question: str, graph: str, settings: dict[str, Any]) -> LiveRun:
        """Start a run; BadOption if too many go on already."""
        if len(self.live) >= MAX_LIVE:
            raise BadOption(f"{MAX_LIVE} runs go on or wait for an approval: end one of them first")
        run = LiveRun(secrets.token_hex(6), question, graph, self._source, settings)
        run.result = {"question": question}
        run.task = asyncio.create_task(self._run(run))
        self.live[run.id] = run
        return run

    async def close(self) -> None:
        """Stop all runs, and store them."""
        tasks = [run.task for run in self.live.values() if run.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._opener.shutdown(wait=False, cancel_futures=True)

    async def _run(self, run: LiveRun) -> None:
        started = time.perf_counter()
        try:
            await self._answer(run)
        except asyncio.CancelledError:
            run.error = STOPPED
        except Exception as fault:
            told = str(fault) if isinstance(fault, SelfCorrectError) else describe_error(fault)
            run.error = one_line(told)
        result = {n: v for n, v in run.result.items() if n not in ("messages", "__interrupt__")}
        result["seconds"] = round(time.perf_counter() - started, 3)
        run.result = json.loads(json.dumps(result, default=json_value))
        try:
            await asyncio.to_thread(self._store.add, run)
        finally:
            del self.live[run.id]

    async def _answer(self, run: LiveRun) -> None:
        """Run the graph to its end; between its pauses, wait for a person's reply."""
        loop = asyncio.get_running_loop()
        run.steps["open"] = {"name": "open the models and the index"}
        given = (run.graph, run.settings, InMemorySaver())
        graph = await loop.run_in_executor(self._opener, self._open_graph, *given)
        turn: Any = {"question": run.question}
        while True:
            await _stream(run, graph, turn)
            pauses = run.result.pop("__interrupt__", ())
            if not pauses:
                return
            run.pause, run.reply = pauses[0].value, loop.create_future()
            try:
                turn = Command(resume=await run.reply)
            finally:
                run.pause = run.reply = None


async def _stream(run: LiveRun, graph: Any, turn: Any) -> None:
    """Run ``turn`` to the end or a pause, and note its steps, its text and its state."""
    config = {"configurable": {"thread_id": run.id}}
    message, begun = "", {}
    modes, keys = ["tasks", "messages", "values"], graph.output_channels
    async for mode, part in graph.astream(turn, config, stream_mode=modes, output_keys=keys):
        if mode == "values":
            run.result |= part
        elif mode == "messages":
            chunk = part[0]
            if chunk.text:
                run.text = (run.text if chunk.id == message else "") + chunk.text
                message = chunk.id
        elif "input" in part:
            begun[part["id"]] = time.perf_counter()
            run.steps[part["id"]] = {"name": part["name"]}
        elif part["id"] in begun:
            seconds = time.perf_counter() - begun.pop(part["id"])
            run.steps[part["id"]]["seconds"] = round(seconds, 2)
