"""Runs that go on: each in a task of its own, with a log that any number of pages can follow."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from selfcorrect_rag.errors import GO_ON, SelfCorrectError, describe_error, one_line
from selfcorrect_rag.serving.saved import json_object, made_by, saved
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.ui.places import Places
from selfcorrect_rag.ui.store import Run, RunStore, State
from selfcorrect_rag.ui.words import doing, said

MOST_GOING = 16
"""Runs at a time, waiting ones among them; more are refused."""
STOPPED = "stopped by hand: what was done until then is kept"


class Busy(SelfCorrectError, RuntimeError):
    """Too many runs go on, or the server ends."""


class Entry(NamedTuple):
    """Something that happened, as a server-sent event."""

    kind: Literal["begin", "end", "said", "text", "waiting", "going", "over"]
    data: dict[str, Any]


@dataclass(eq=False)
class Going:
    """A run that goes on."""

    id: str
    question: str
    graph: str
    settings: Settings
    place: str
    asked: float = field(default_factory=time.time)
    started: float = field(default_factory=time.perf_counter)
    waited: float = 0.0
    """Seconds for which it waited for a person."""
    result: dict[str, Any] = field(default_factory=dict)
    """As far as it is known."""
    log: list[Entry] = field(default_factory=list)
    pause: dict[str, Any] | None = None
    """The search that waits for a person's approval: ``query`` and ``source``."""
    work: "asyncio.Task[None] | None" = None
    """What answers the question; may be cancelled."""
    task: "asyncio.Task[None] | None" = None
    """What waits for ``work`` and stores what became of it; ends when the run is over."""
    replied: "asyncio.Future[Any] | None" = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self, kind: Any, **data: Any) -> None:
        """Add to the log, and wake who follows it."""
        self.log.append(Entry(kind, data))
        self.changed.set()
        self.changed = asyncio.Event()

    async def follow(self, since: int = 0) -> AsyncIterator[tuple[int, Entry]]:
        """The log from entry ``since`` on, as it grows, until the run is over."""
        while True:
            changed = self.changed
            while since < len(self.log):
                entry = self.log[since]
                since += 1
                yield since, entry
                if entry.kind == "over":
                    return
            await changed.wait()


class Runs:
    """Starts runs, keeps those that go on, and stores those that are over."""

    def __init__(self, places: Places, store: RunStore) -> None:
        self.places, self.store = places, store
        self.going: dict[str, Going] = {}
        self.lost: dict[str, str] = {}
        """Runs that are over and could not be stored, and why."""
        self.ends = False
        """Whether the server ends."""
        # A thread of its own: questions that wait for the models leave the pages' threads alone.
        self._opener = ThreadPoolExecutor(1, "opening")

    def start(self, question: str, graph: str, settings: Settings, place: str) -> Going:
        """Start a run.

        Raises:
            Busy: too many go on already, or the server ends.
        """
        if self.ends:
            raise Busy("the server ends")
        if len(self.going) >= MOST_GOING:
            raise Busy(f"{MOST_GOING} runs go on or wait for an approval: end one of them first")
        run = Going(secrets.token_hex(6), question, graph, settings, place)
        run.result |= {"question": question, "original_question": question}
        run.work = asyncio.create_task(self._answer(run))
        run.task = asyncio.create_task(self._run(run, run.work))
        self.going[run.id] = run
        return run

    def stop(self, id: str) -> None:
        """Stop a run, if it goes on."""
        if (run := self.going.get(id)) and run.work:
            run.work.cancel()

    def reply(self, id: str, reply: Any) -> None:
        """Answer the search that a run waits with, if it does."""
        run = self.going.get(id)
        if run and run.replied and not run.replied.done():
            run.replied.set_result(reply)

    async def close(self) -> None:
        """Stop all runs, and wait until they are stored; none can be started any more."""
        self.ends = True
        runs = [*self.going.values()]
        for run in runs:
            self.stop(run.id)
        await asyncio.gather(*(run.task for run in runs if run.task), return_exceptions=True)
        self._opener.shutdown(wait=False, cancel_futures=True)

    async def _run(self, run: Going, work: "asyncio.Task[None]") -> None:
        """Store what becomes of a run. It is over then, also where that fails."""
        state: State = "failed"
        error = ""
        try:
            await asyncio.wait([work])
            state, error = _outcome(work)
            await asyncio.to_thread(self._keep, run, state, error)
        except Exception as fault:
            error = one_line(f"this run could not be stored: {describe_error(fault)}", 500)
            self.lost[run.id] = error
        finally:
            del self.going[run.id]
            run.tell("over", state=state, error=error)

    async def _answer(self, run: Going) -> None:
        """Answer the question; what is known so far stands in the run's result."""
        if not self.places.warm:
            run.tell("begin", id="open", words="Opening the models and the index")
        loop = asyncio.get_running_loop()
        graph, run.result["made"] = await loop.run_in_executor(self._opener, self._open, run)
        run.tell("end", id="open", seconds=time.perf_counter() - run.started)
        given: Any = {"question": run.question}
        while True:
            await _stream(run, graph, given)
            if not (pauses := run.result.pop("__interrupt__", ())):
                return
            asked = time.perf_counter()
            try:
                given = Command(resume=await _reply(run, pauses[0].value))
            finally:
                run.waited += time.perf_counter() - asked

    def _open(self, run: Going) -> tuple[Any, dict[str, Any]]:
        """The graph of a run, and what makes its result."""
        graph = self.places.graph(run.place, run.graph, run.settings, InMemorySaver())
        parts = self.places.parts(run.place)
        settings = parts.settings(run.graph, run.settings)
        return graph, made_by(run.graph.replace("_", "-"), settings, parts)

    def _keep(self, run: Going, state: State, error: str) -> None:
        result = {key: value for key, value in run.result.items() if key != "__interrupt__"}
        if state == "stopped":
            result["notes"] = [*result.get("notes", []), STOPPED]
        seconds = time.perf_counter() - run.started - run.waited
        result = json.loads(json.dumps(saved(result, seconds), default=json_object))
        self.store.add(
            Run(
                id=run.id,
                asked=run.asked,
                question=run.question,
                graph=run.graph,
                place=run.place,
                state=state,
                seconds=result["seconds"],
                answer=str(result.get("answer") or ""),
                error=error,
                result=result,
            )
        )


def _outcome(work: "asyncio.Task[None]") -> tuple[State, str]:
    """How a run ended, and why it failed."""
    if work.cancelled():
        return "stopped", ""
    if (fault := work.exception()) is None:
        return "done", ""
    message = str(fault) if isinstance(fault, SelfCorrectError) else describe_error(fault)
    return "failed", one_line(message.replace(GO_ON, ""), 500)


async def _stream(run: Going, graph: Any, given: Any) -> None:
    """Run ``given`` until the end or a pause: what happens goes into the run's log, the state so
    far into its result."""
    config = {"configurable": {"thread_id": run.id}}
    began: dict[str, float] = {}
    message = ""
    modes, keys = ["tasks", "messages", "custom", "values"], graph.output_channels
    async for mode, part in graph.astream(given, config, stream_mode=modes, output_keys=keys):
        if mode == "values":
            run.result |= part
        elif mode == "custom":
            if line := said(part):
                run.tell("said", html=line)
        elif mode == "messages":
            chunk = part[0]
            if chunk.text:
                run.tell("text", text=chunk.text, new=chunk.id != message)
                message = chunk.id
        elif "input" in part:
            began[part["id"]] = time.perf_counter()
            run.tell("begin", id=part["id"], words=doing(part["name"]))
        elif part["id"] in began:
            run.tell("end", id=part["id"], seconds=time.perf_counter() - began.pop(part["id"]))


async def _reply(run: Going, pause: dict[str, Any]) -> Any:
    """A person's reply to a search."""
    run.pause, run.replied = pause, asyncio.get_running_loop().create_future()
    run.tell("waiting")
    try:
        return await run.replied
    finally:
        run.pause = run.replied = None
        run.tell("going")
