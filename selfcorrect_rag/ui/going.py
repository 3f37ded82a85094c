"""Runs that go on: each in a task of its own, with a log that any number of pages can follow."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from selfcorrect_rag.errors import SelfCorrectError
from selfcorrect_rag.errors.messages import GO_ON, describe_error, one_line
from selfcorrect_rag.serving.saved import json_object, made_by, saved
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.ui.places import Places
from selfcorrect_rag.ui.store import Run, RunStore, State
from selfcorrect_rag.ui.words import doing, said

MOST_GOING = 16
"""Runs at a time, waiting ones among them; more are refused."""
STOPPED = "stopped by hand: what was done until then is kept"


class Busy(SelfCorrectError, RuntimeError):
    """Too many runs go on."""


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
    log: list[Entry] = field(default_factory=list)
    pause: dict[str, Any] | None = None
    """The search that waits for a person's approval: ``query`` and ``source``."""
    task: "asyncio.Task[None] | None" = None
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

    def start(self, question: str, graph: str, settings: Settings, place: str) -> Going:
        """Start a run.

        Raises:
            Busy: too many go on already.
        """
        if len(self.going) >= MOST_GOING:
            raise Busy(f"{MOST_GOING} runs go on or wait for an approval: end one of them first")
        run = Going(secrets.token_hex(6), question, graph, settings, place)
        self.going[run.id] = run
        run.task = asyncio.create_task(self._run(run))
        return run

    def stop(self, id: str) -> None:
        """Stop a run, if it goes on."""
        if (run := self.going.get(id)) and run.task:
            run.task.cancel()

    def reply(self, id: str, reply: Any) -> None:
        """Answer the search that a run waits with, if it does."""
        run = self.going.get(id)
        if run and run.replied and not run.replied.done():
            run.replied.set_result(reply)

    async def close(self) -> None:
        """Stop all runs, and wait until they are stored."""
        tasks = [run.task for run in self.going.values() if run.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, run: Going) -> None:
        result: dict[str, Any] = {"question": run.question, "original_question": run.question}
        started, waited = time.perf_counter(), 0.0
        state: State = "done"
        error = ""
        try:
            if not self.places.warm:
                run.tell("begin", id="open", words="Opening the models and the index")
            graph, result["made"] = await asyncio.to_thread(self._open, run)
            run.tell("end", id="open", seconds=time.perf_counter() - started)
            given: Any = {"question": run.question}
            while True:
                await _stream(run, graph, given, result)
                if not (pauses := result.pop("__interrupt__", ())):
                    break
                asked = time.perf_counter()
                given = Command(resume=await _reply(run, pauses[0].value))
                waited += time.perf_counter() - asked
        except asyncio.CancelledError:
            state = "stopped"
            result["notes"] = [*result.get("notes", []), STOPPED]
        except Exception as fault:
            state = "failed"
            message = str(fault) if isinstance(fault, SelfCorrectError) else describe_error(fault)
            error = one_line(message.replace(GO_ON, ""), 500)
        finally:
            result.pop("__interrupt__", None)
            seconds = time.perf_counter() - started - waited
            ended = saved(result, seconds), state, error
            await asyncio.shield(asyncio.to_thread(self._keep, run, *ended))
            run.tell("over", state=state, error=error)
            del self.going[run.id]

    def _open(self, run: Going) -> tuple[Any, dict[str, Any]]:
        """The graph of a run, and what makes its result."""
        graph = self.places.graph(run.place, run.graph, run.settings, InMemorySaver())
        parts = self.places.parts(run.place)
        settings = parts.settings(run.graph, run.settings)
        return graph, made_by(run.graph.replace("_", "-"), settings, parts)

    def _keep(self, run: Going, result: dict[str, Any], state: State, error: str) -> None:
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
                result=json.loads(json.dumps(result, default=json_object)),
            )
        )


async def _stream(run: Going, graph: Any, given: Any, result: dict[str, Any]) -> None:
    """Run ``given`` until the end or a pause: what happens goes into the log, the state so far into
    ``result``."""
    config = {"configurable": {"thread_id": run.id}}
    began: dict[str, float] = {}
    message = ""
    modes, keys = ["tasks", "messages", "custom", "values"], graph.output_channels
    async for mode, part in graph.astream(given, config, stream_mode=modes, output_keys=keys):
        if mode == "values":
            result |= part
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
    run.tell("waiting", query=pause["query"], source=pause["source"])
    try:
        return await run.replied
    finally:
        run.pause = run.replied = None
        run.tell("going")
