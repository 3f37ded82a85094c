"""Runs an engine for callers in any thread and event loop: retries, errors, closing."""

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
from contextlib import aclosing, suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from selfcorrect_rag.errors import EngineFailed, wrap_errors
from selfcorrect_rag.models.engines.engine import Completion, Engine, EngineUnavailable, Request

T = TypeVar("T")
Pump = Callable[[Callable[[str], None]], Coroutine[Any, Any, None]]
"""A coroutine function that passes texts to its argument as they come."""
CLOSED = "this model has been closed: make a new one"
FORKED = "this model belongs to the parent process: make the model in the process that uses it"
FIRST_BACKOFF, LONGEST_BACKOFF = 0.25, 4.0
"""Maximum seconds before the second attempt of a call, and before any attempt."""
EXIT_SECONDS = 10.0
"""Maximum seconds that the interpreter's exit waits for an engine to close."""


class EngineRunner:
    """Runs an engine on one background event loop, for calls from any thread or loop.

    A cancelled or interrupted caller cancels its call in the engine; every other caller gets a
    result or an error. The thread ends when this object is closed or freed, or with the
    interpreter. A forked child's calls are refused. A call is retried for ``retry_seconds`` while
    the engine is unavailable.
    """

    def __init__(self, engine: Engine, *, retry_seconds: float = 0.0) -> None:
        """Open the engine; raises whatever :meth:`Engine.open` raises."""
        self.engine, self._retry_seconds = engine, retry_seconds
        self._name = f"the engine ({type(engine).__name__})"
        self._closed, self._lock, self._process = False, threading.Lock(), os.getpid()
        self._thread = _EngineThread(engine)
        self._thread.start()
        weakref.finalize(self, self._thread.stop).atexit = False
        try:
            self.run(self._open())
        except BaseException:
            self.close()
            raise

    async def _open(self) -> None:
        with wrap_errors(EngineFailed, self._name):
            await self.engine.open()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's loop; EngineFailed if this is closed before its end."""
        result = self._submit(call)
        try:
            return result.result()
        except BaseException:  # also an interrupt of the caller
            result.cancel()
            raise

    async def arun(self, call: Coroutine[Any, Any, T]) -> T:
        """The async twin of :meth:`run`, from another event loop."""
        return await asyncio.wrap_future(self._submit(call))

    def texts(self, pump: Pump) -> Generator[str, None, None]:
        """Run ``pump`` on the engine's loop, and yield its texts as they come."""
        texts = SimpleQueue[str | None]()
        running = self._submit(pump(texts.put))
        running.add_done_callback(lambda _: texts.put(None))
        try:
            while (text := texts.get()) is not None:
                yield text
            running.result()
        finally:
            running.cancel()

    async def atexts(self, pump: Pump) -> AsyncGenerator[str, None]:
        """The async twin of :meth:`texts`."""
        loop, texts = asyncio.get_running_loop(), asyncio.Queue[str | None]()

        def put(text: str | None) -> None:
            with suppress(RuntimeError):  # the caller's loop has ended
                loop.call_soon_threadsafe(texts.put_nowait, text)

        running = self._submit(pump(put))
        running.add_done_callback(lambda _: put(None))
        try:
            while (text := await texts.get()) is not None:
                yield text
            running.result()
        finally:
            running.cancel()

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

        return await self.retry(attempt)

    async def stream(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncGenerator[Sequence[int], None]:
        """Yield generated ids as they come; called on the engine's loop. Only its beginning is
        retried, since streamed tokens cannot be taken back."""

        async def begin() -> tuple[AsyncGenerator[Sequence[int], None], Sequence[int] | None]:
            stream = self.engine.stream(prompt, request)
            return stream, await anext(stream, None)

        with wrap_errors(EngineFailed, self._name):
            stream, ids = await self.retry(begin)
            async with aclosing(stream):
                while ids is not None:
                    yield ids
                    ids = await anext(stream, None)

    async def retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retry for ``retry_seconds`` while the engine is unavailable."""
        deadline, backoff = time.monotonic() + self._retry_seconds, FIRST_BACKOFF
        while True:
            try:
                return await attempt()
            except EngineUnavailable:
                if time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(random.uniform(backoff / 2, backoff))
            backoff = min(2 * backoff, LONGEST_BACKOFF)

    def close(self) -> None:
        """Fail all calls, close the engine, and wait for that; from any thread, any number of
        times. A forked child leaves the parent's engine alone."""
        if self._process != os.getpid():
            return
        with self._lock:
            self._closed = True
        self._thread.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _submit(self, call: Coroutine[Any, Any, T]) -> "Future[T]":
        try:
            if self._process != os.getpid():
                raise EngineFailed(FORKED)
            with self._lock:  # so that every accepted call is on the loop before it ends
                if self._closed:
                    raise EngineFailed(CLOSED)
                return asyncio.run_coroutine_threadsafe(
                    self._fail_if_closed(call), self._thread.loop
                )
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
            if bad := [i for i in needed if math.isnan(by_id.get(i, math.nan))]:
                return f"no log-probability of the ids {sorted(bad)}"
    return None


class _EngineThread(threading.Thread):
    """The event loop of an engine; it holds no reference to the runner, which can be freed."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(name="engine", daemon=True)
        self.loop, self._process = asyncio.new_event_loop(), os.getpid()
        self._engine, self._stopping = engine, asyncio.Event()
        # An engine that is freed while the interpreter exits can abort the process.
        atexit.register(self.stop, EXIT_SECONDS)

    def run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        finally:
            self.loop.close()
            atexit.unregister(self.stop)

    def stop(self, wait_seconds: float = 0.0) -> None:
        """End the loop, once the engine is closed; may be repeated at any time."""
        if self._process == os.getpid():
            with suppress(RuntimeError):  # it has ended
                self.loop.call_soon_threadsafe(self._stopping.set)
            if wait_seconds:
                self.join(wait_seconds)

    async def _serve(self) -> None:
        await self._stopping.wait()
        await asyncio.sleep(0)  # calls that were just accepted begin, so that they fail as closed
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        await self._engine.close()
