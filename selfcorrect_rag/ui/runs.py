"""Live runs: each in a separate task, with a log that any number of pages can follow."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from selfcorrect_rag.errors import SelfCorrectError, describe_error, one_line
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.ui.store import PastRun, RunStore
from selfcorrect_rag.ui.view import STEPS, json_value

MAX_LIVE = 16
"""Runs at a time, waiting ones among them."""
STOPPED = "stopped by hand; steps that were finished are kept"


class Busy(SelfCorrectError, RuntimeError):
    """Too many runs go on."""


@dataclass(eq=False)
class LiveRun:
    """A run that goes on."""

    id: str
    question: str
    graph: str
    settings: Settings
    source: str
    asked: float = field(default_factory=time.time)
    result: dict[str, Any] = field(default_factory=dict)
    """As far as it is known."""
    log: list[dict[str, Any]] = field(default_factory=list)
    """The entries that pages receive; each has a ``kind``."""
    pause: dict[str, Any] | None = None
    """The search that waits for a person's approval: ``query`` and ``source``."""
    reply: "asyncio.Future[bool | str] | None" = None
    task: "asyncio.Task[None] | None" = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, kind: str, **data: Any) -> None:
        """Add an entry to the log, and wake its followers."""
        self.log.append({"kind": kind, **data})
        self.changed.set()
        self.changed = asyncio.Event()

    async def follow(self, since: int = 0) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        """Iterate over the log from an entry on, as it grows, until the run is over."""
        while True:
            changed = self.changed
            for number in range(since, len(self.log)):
                since = number + 1
                yield since, self.log[number]
                if self.log[number]["kind"] == "over":
                    return
            await changed.wait()


class Runs:
    """Starts runs, and stores them when they are over.

    Args:
        open_graph: returns the graph of a name, settings and a checkpointer; called in a thread.
        store: past runs.
        source: the name of the index, for people.
    """

    def __init__(self, open_graph: Callable[..., Any], store: RunStore, source: str) -> None:
        self._open_graph, self._store, self._source = open_graph, store, source
        self.live: dict[str, LiveRun] = {}
        # A separate thread: runs that wait for models leave the pages' threads alone.
        self._opener = ThreadPoolExecutor(1, "opening")

    def start(self, question: str, graph: str, settings: Settings) -> LiveRun:
        """Start a run.

        Raises:
            Busy: too many go on already.
        """
        if len(self.live) >= MAX_LIVE:
            raise Busy(f"{MAX_LIVE} runs go on or wait for an approval: end one of them first")
        run = LiveRun(secrets.token_hex(6), question, graph, settings, self._source)
        run.result = {"question": question}
        run.task = asyncio.create_task(self._run(run))
        self.live[run.id] = run
        return run

    async def close(self) -> None:
        """Stop all runs, and store them."""
        runs = [run.task for run in self.live.values() if run.task]
        for task in runs:
            task.cancel()
        await asyncio.gather(*runs, return_exceptions=True)
        self._opener.shutdown(wait=False, cancel_futures=True)

    async def _run(self, run: LiveRun) -> None:
        started, error = time.perf_counter(), ""
        try:
            await self._answer(run)
        except asyncio.CancelledError:
            error = STOPPED
        except Exception as fault:
            told = str(fault) if isinstance(fault, SelfCorrectError) else describe_error(fault)
            error = one_line(told)
        result = {n: v for n, v in run.result.items() if n not in ("messages", "__interrupt__")}
        result["seconds"] = round(time.perf_counter() - started, 3)
        past = PastRun(
            id=run.id,
            asked=run.asked,
            question=run.question,
            graph=run.graph,
            source=run.source,
            settings=run.settings.model_dump(mode="json", exclude_unset=True),
            answer=str(result.get("answer") or ""),
            error=error,
            result=json.loads(json.dumps(result, default=json_value)),
        )
        try:
            await asyncio.to_thread(self._store.add, past)
        finally:
            del self.live[run.id]
            run.tell("over", error=error)

    async def _answer(self, run: LiveRun) -> None:
        run.tell("begin", id="open", words="Opening the models and the index")
        loop = asyncio.get_running_loop()
        given = (run.graph, run.settings, InMemorySaver())
        graph = await loop.run_in_executor(self._opener, self._open_graph, *given)
        run.tell("end", id="open")
        turn: Any = {"question": run.question}
        while True:
            await _stream(run, graph, turn)
            pauses = run.result.pop("__interrupt__", ())
            if not pauses:
                return
            run.pause, run.reply = pauses[0].value, loop.create_future()
            run.tell("waiting")
            try:
                turn = Command(resume=await run.reply)
            finally:
                run.pause = run.reply = None
            run.tell("resumed")


async def _stream(run: LiveRun, graph: Any, turn: Any) -> None:
    """Run ``turn`` to the end or a pause; steps and text go into the log, the state into the
    result."""
    config = {"configurable": {"thread_id": run.id}}
    message, begun = "", {}
    modes, keys = ["tasks", "messages", "values"], graph.output_channels
    async for mode, part in graph.astream(turn, config, stream_mode=modes, output_keys=keys):
        if mode == "values":
            run.result |= part
        elif mode == "messages":
            chunk = part[0]
            if chunk.text:
                run.tell("text", text=chunk.text, new=chunk.id != message)
                message = chunk.id
        elif "input" in part:
            words = STEPS.get(part["name"], part["name"].replace("_", " "))
            begun[part["id"]] = time.perf_counter()
            run.tell("begin", id=part["id"], words=words)
        elif part["id"] in begun:
            seconds = round(time.perf_counter() - begun.pop(part["id"]), 2)
            run.tell("end", id=part["id"], seconds=seconds)
