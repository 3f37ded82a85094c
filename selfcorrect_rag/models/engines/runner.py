"""Runs an engine for callers in any thread and event loop: limits, retries, errors, closing."""

import asyncio
import atexit
import math
import os
import random
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from selfcorrect_rag.errors import EngineFailed, wrap_errors
from selfcorrect_rag.models.engines.engine import Completion, Engine, EngineUnavailable, Request

T = TypeVar("T")
CLOSED = "this model has been closed: make a new one"
FIRST_BACKOFF, LONGEST_BACKOFF = 0.25, 4.0
"""Maximum seconds before the second attempt of a call, and before any attempt."""
EXIT_SECONDS = 10.0
"""Maximum seconds that the interpreter's exit waits for engines to close."""

_stops: dict[threading.Thread, Callable[[], None]] = {}
"""What stops each running loop, by its thread. An engine that is freed while the interpreter exits
can abort the process, so the exit waits for them."""
_runners: "weakref.WeakSet[EngineRunner]" = weakref.WeakSet()


class EngineRunner:
    """Runs an engine on one background event loop, for calls from any thread or loop.

    A cancelled or interrupted caller cancels its call in the engine; every other caller gets a
    result or an error. At most ``in_flight`` prompts are in the engine; further calls wait in
    order. The thread ends when this object is closed or freed, or with the interpreter. A forked
    child starts a thread of its own if the engine allows it.
    """

    def __init__(
        self, engine: Engine, *, in_flight: int | None = None, retry_seconds: float = 0.0
    ) -> None:
        """Open the engine; raises whatever :meth:`Engine.open` raises.

        Args:
            engine: not open yet.
            in_flight: maximum number of concurrent prompts; the engine's own by default.
            retry_seconds: how long to retry while it is unavailable.
        """
        self.engine, self._in_flight, self._retry_seconds = engine, in_flight, retry_seconds
        self._name = f"the engine ({type(engine).__name__})"
        self._closed, self._lock = False, threading.Lock()
        self._start()
        _runners.add(self)
        try:
            self.run(self._open())
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        self._process, self._loop = os.getpid(), asyncio.new_event_loop()
        stopping = asyncio.Event()
        # The thread holds no reference to this object, so that it can be freed.
        self._thread = threading.Thread(
            target=_run_loop, args=(self._loop, self.engine, stopping), name="engine", daemon=True
        )
        self._stop = _stops[self._thread] = partial(_stop, self._loop, self._process, stopping)
        self._thread.start()
        weakref.finalize(self, self._stop).atexit = False
        self._turn, self._down_since = asyncio.Lock(), math.inf
        self._places: asyncio.Semaphore | None = None

    async def _open(self) -> None:
        with wrap_errors(EngineFailed, self._name):
            await self.engine.open()

    @property
    def in_flight(self) -> int:
        """Maximum number of prompts in the engine at a time."""
        return self._in_flight or self.engine.in_flight

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's loop, from a thread that may block; EngineFailed if this
        is closed before there is a result."""
        result = self._submit(call)
        try:
            return result.result()
        except BaseException:  # also an interrupt of the caller
            result.cancel()
            raise

    async def arun(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's loop, from another event loop; see :meth:`run`."""
        return await asyncio.wrap_future(self._submit(call))

    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        """Continue prompts; called on the engine's loop. Any error is an EngineFailed."""

        async def attempt() -> list[Completion]:
            with wrap_errors(EngineFailed, self._name):
                given = await self.engine.complete(prompts, request)
                if problem := _problem(given, len(prompts), request):
                    raise EngineFailed(f"{self._name} gave {problem}")
            return given

        async with self._hold(len(prompts)):
            return await self.retry(attempt)

    def stream(
        self, prompt: Sequence[int], request: Request
    ) -> Generator[Sequence[int], None, None]:
        """Yield generated ids as they come, for a thread that may block. A stream that broke off is
        not retried, since its tokens cannot be taken back."""
        stream = _Stream(self._ids(prompt, request))
        try:
            while (ids := self.run(stream.next())) is not None:
                yield ids
        finally:
            with suppress(EngineFailed):  # closing has ended it
                self.run(stream.close())

    async def astream(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncGenerator[Sequence[int], None]:
        """The async twin of :meth:`stream`."""
        stream = _Stream(self._ids(prompt, request))
        try:
            while (ids := await self.arun(stream.next())) is not None:
                yield ids
        finally:
            with suppress(EngineFailed):
                await self.arun(stream.close())

    def close(self) -> None:
        """Refuse new calls, fail running ones, close the engine, and wait until that is done. From
        any thread, any number of times; a forked child leaves the parent's engine alone."""
        with self._lock:
            self._closed = True
            if self._process != os.getpid():
                return
            self._stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _submit(self, call: Coroutine[Any, Any, T]) -> "Future[T]":
        try:
            with self._lock:  # so that every accepted call is on the loop before it ends
                if self._closed:
                    raise EngineFailed(CLOSED)
                if self._process != os.getpid():
                    self.engine.after_fork()
                    self._start()
                return asyncio.run_coroutine_threadsafe(self._fail_if_closed(call), self._loop)
        except BaseException:
            call.close()
            raise

    async def _fail_if_closed(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return await call
        except asyncio.CancelledError:
            if self._closed:  # not the caller
                raise EngineFailed(CLOSED) from None
            raise

    async def _ids(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncGenerator[Sequence[int], None]:
        async def following(stream: Any) -> Sequence[int] | None:
            with wrap_errors(EngineFailed, self._name):
                ids: Sequence[int] | None = await anext(stream, None)
            return ids

        async def begin() -> tuple[Any, Sequence[int] | None]:
            stream = self.engine.stream(prompt, request)
            return stream, await following(stream)

        async with self._hold(1):
            stream, ids = await self.retry(begin)
            try:
                while ids is not None:
                    yield ids
                    ids = await following(stream)
            finally:
                if aclose := getattr(stream, "aclose", None):
                    await aclose()

    @asynccontextmanager
    async def _hold(self, prompts: int) -> AsyncGenerator[None, None]:
        """Wait in order until ``prompts`` more may be in the engine."""
        places = self._places = self._places or asyncio.Semaphore(self.in_flight)
        held = 0
        try:
            async with self._turn:  # one caller at a time collects, or two could block each other
                while held < min(prompts, self.in_flight):
                    await places.acquire()
                    held += 1
            yield
        finally:
            for _ in range(held):
                places.release()

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry while the engine is unavailable, until ``retry_seconds`` after the first failure
        of any call since its last answer."""
        backoff = FIRST_BACKOFF
        while True:
            try:
                answer = await attempt()
            except EngineUnavailable:
                now = time.monotonic()
                self._down_since = min(self._down_since, now)
                if now >= self._down_since + self._retry_seconds:
                    raise
                await asyncio.sleep(random.uniform(backoff / 2, backoff))
                backoff = min(2 * backoff, LONGEST_BACKOFF)
            else:
                self._down_since = math.inf
                return answer


class _Stream:
    """Ids that an engine streams: one step at a time, also if a step's caller was cancelled."""

    def __init__(self, ids: AsyncGenerator[Sequence[int], None]) -> None:
        self._ids, self._turn = ids, asyncio.Lock()

    async def next(self) -> Sequence[int] | None:
        async with self._turn:
            return await anext(self._ids, None)

    async def close(self) -> None:
        async with self._turn:
            await self._ids.aclose()


def _problem(given: Sequence[Completion], prompts: int, request: Request) -> str | None:
    """Why an engine's completions are invalid; None if they are valid."""
    if len(given) != prompts:
        return f"{len(given)} completions for {prompts} prompts"
    wanted = set(request.logprob_ids)
    for each in given:
        if not 0 < len(each.ids) <= request.max_tokens or len(each.logprobs) != len(each.ids):
            return (
                f"{len(each.ids)} ids and log-probabilities of {len(each.logprobs)}, up to "
                f"{request.max_tokens} expected"
            )
        if each.finish_reason not in ("stop", "length"):
            return f"a completion that ended by {each.finish_reason!r}"
        for token_id, by_id in zip(each.ids, each.logprobs, strict=True):
            needed = wanted if token_id in wanted else {token_id}
            if missing := needed - by_id.keys():
                return f"no log-probability of the ids {sorted(missing)}"
            if any(math.isnan(by_id[i]) for i in needed):
                return "a log-probability that is not a number"
    return None


def _stop(loop: asyncio.AbstractEventLoop, process: int, stopping: asyncio.Event) -> None:
    """End a loop, once its engine is closed; may be repeated at any time."""
    if process == os.getpid():
        with suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(stopping.set)


def _run_loop(loop: asyncio.AbstractEventLoop, engine: Engine, stopping: asyncio.Event) -> None:
    try:
        loop.run_until_complete(_serve(engine, stopping))
    finally:
        loop.close()
        _stops.pop(threading.current_thread(), None)


async def _serve(engine: Engine, stopping: asyncio.Event) -> None:
    await stopping.wait()
    await asyncio.sleep(0)  # calls that were just accepted begin, so that they fail as closed
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await engine.close()


@atexit.register
def _stop_all() -> None:
    deadline, running = time.monotonic() + EXIT_SECONDS, dict(_stops)
    for stop in running.values():
        stop()
    for thread in running:
        thread.join(max(0.0, deadline - time.monotonic()))


def _after_fork() -> None:
    _stops.clear()  # they run in the parent alone
    for runner in list(_runners):
        runner._lock = threading.Lock()  # a thread of the parent may have held it


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
