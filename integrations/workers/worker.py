"""Takes runs from Postgres and drives them through the graphs."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.types import Command
from pydantic_core import to_jsonable_python

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.models.engines.engine import EngineUnavailable

from .runs import Connection, Run, connect, end, offer, put_back, release, set_up, take

Graphs = Mapping[str, Any]
log = logging.getLogger(__name__)

IDLE_SECONDS = 1.0
"""How long a free slot waits for a notification before it looks for runs itself."""
LONGEST_WAIT = 30.0
"""Seconds between attempts at most: of a run, at Postgres, and at opening models."""
PATIENCE = 3600.0
"""Seconds that a run waits for an engine that cannot be reached; a restart loads a model anew."""


class Worker:
    """Runs graphs, several runs at a time.

    Args:
        address: of Postgres, ``postgresql://...``.
        open_graphs: opens the models and returns the graphs by name; called in a thread, and again
            with backoff while it raises.
        slots: how many runs at a time; each has a session with Postgres.
        tries: how often a run is taken before it fails, taking over from a dead worker included;
            attempts at an engine that cannot be reached do not count.
    """

    def __init__(
        self, address: str, open_graphs: Callable[[], Graphs], slots: int = 4, tries: int = 10
    ) -> None:
        self.address, self.slots, self.tries = address, slots, tries
        self._open_graphs, self._graphs = open_graphs, dict[str, Any]()
        self._stopping = asyncio.Event()
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        """What its runs show."""
        self.working_on: set[str] = set()
        """The ids of the runs that this worker holds."""
        self.waits_for = "the models"
        """What keeps this worker from taking runs; empty if nothing does."""

    def stop(self) -> None:
        """Take no more runs; :meth:`work` returns once those that are held have ended."""
        self._stopping.set()

    async def work(self) -> None:
        """Work until :meth:`stop`."""
        self._graphs = dict(await self._until_it_works("the models", self._opened) or {})
        await self._until_it_works("Postgres", self._set_up)
        if not self._stopping.is_set():
            log.info("taking runs of %s", ", ".join(self._graphs))
            await asyncio.gather(*(self._slot() for _ in range(self.slots)))

    async def _opened(self) -> Graphs:
        return await asyncio.to_thread(self._open_graphs)

    async def _set_up(self) -> None:
        async with await connect(self.address) as connection:
            await set_up(connection)
            await offer(connection, self._graphs)

    async def _slot(self) -> None:
        while not self._stopping.is_set():
            await self._until_it_works("Postgres", self._take_runs)

    async def _take_runs(self) -> None:
        async with await connect(self.address) as connection:
            await connection.execute("LISTEN runs")
            self.waits_for = ""
            while not self._stopping.is_set():
                run = await take(connection, self._graphs, self.name)
                if run is None:
                    await _notified(connection, IDLE_SECONDS)
                    continue
                self.working_on.add(run.id)
                try:
                    await self._drive(connection, run)
                    await release(connection, run)
                finally:
                    self.working_on.discard(run.id)
                await _notified(connection, 0)  # what came meanwhile would pile up

    async def _drive(self, connection: Connection, run: Run) -> None:
        """One attempt at a run.

        Raises:
            psycopg.OperationalError: the session is lost, and with it the run.
        """
        if run.attempts > self.tries:
            # Perhaps it is the run that kills its workers.
            await end(connection, run, "failed", error=f"not ended after {self.tries} attempts")
            return
        try:
            output = await self._result(connection, run)
            status = "paused" if "__interrupt__" in output else "done"
            plain = to_jsonable_python(output, fallback=str, inf_nan_mode="null")
            await end(connection, run, status, plain)
        except Exception as error:
            reason = _as_text(f"{type(error).__name__}: {error}")[:2000]
            log.warning("run %s, attempt %d: %s", run.id, run.attempts, reason)
            is_away = isinstance(error, EngineUnavailable)
            is_over = run.waited >= PATIENCE if is_away else run.attempts == self.tries
            if is_over or _is_the_clients(error):
                await end(connection, run, "failed", error=reason)
            elif is_away:
                await put_back(connection, run, reason, LONGEST_WAIT, counts=False)
            else:
                await put_back(connection, run, reason, min(2.0**run.attempts, LONGEST_WAIT))

    async def _result(self, connection: Connection, run: Run) -> dict[str, Any]:
        """The graph's output; a run that was begun goes on after its last checkpoint."""
        saver = AsyncPostgresSaver(connection)
        graph = self._graphs[run.graph].copy(update={"checkpointer": saver})
        config = {"configurable": {"thread_id": run.thread}, "metadata": {"run": run.id}}
        state = await graph.aget_state(config)
        begun = (state.metadata or {}).get("run") == run.id
        given = None if begun else _given(run.request)
        context = run.request.get("context")
        output: dict[str, Any] = await graph.ainvoke(
            given, config, context=context, durability="sync"
        )
        return output

    async def _until_it_works(self, what: str, attempt: Callable[[], Any]) -> Any:
        """Try until it works or the worker stops, at growing intervals; the log says why not."""
        wait = 0.5
        while not self._stopping.is_set():
            try:
                return await attempt()
            except Exception as error:  # whatever it is, this worker has nothing else to do
                self.waits_for = f"{what}: {type(error).__name__}: {error}".strip()
                log.warning("waiting %g s for %s", wait, self.waits_for)
            try:
                await asyncio.wait_for(self._stopping.wait(), wait)
            except TimeoutError:
                wait = min(2 * wait, LONGEST_WAIT)
        return None


async def _notified(connection: Connection, seconds: float) -> None:
    """Wait for a notification, and take all that there are."""
    async for _ in connection.notifies(timeout=seconds, stop_after=1):
        pass


def _as_text(message: str) -> str:
    """A message that Postgres takes: UTF-8 without NUL."""
    return message.encode(errors="backslashreplace").decode().replace("\0", r"\0")


def _given(request: dict[str, Any]) -> Any:
    """What a graph is invoked with at the beginning of a run."""
    if "resume" in request:
        return Command(resume=request["resume"])
    return request["input"]


def _is_the_clients(error: Exception) -> bool:
    """Whether it is the request that is wrong, so that no other attempt can succeed."""
    return isinstance(error, SelfCorrectError) and isinstance(error, ValueError)
