"""The engine interface: continue token ids, and return log-probabilities of chosen ids.

vLLM in this process, a vLLM server and transformers implement it; a third party's takes 30 lines.
:class:`~selfcorrect_rag.models.EngineReflectionLLM` makes a ReflectionLLM of an engine and a
tokenizer, and :class:`~selfcorrect_rag.models.critic.Critic` a critic. Threads, event loops and
cancellation are the business of :class:`EngineRunner`.
"""

import asyncio
import atexit
import math
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from selfcorrect_rag.errors import EngineFailed, wrap_errors

T = TypeVar("T")
CLOSED = "this model has been closed: make a new one"
FORKED = "this model belongs to the parent process: make the model in the process that uses it"
EXIT_SECONDS = 10.0
"""Maximum seconds that the interpreter's exit waits for an engine to close."""


@dataclass(frozen=True)
class Request:
    """Options for continuing prompts; decoding is greedy unless ``sampling`` says otherwise."""

    max_tokens: int
    """Maximum tokens to generate for each prompt, at least 1."""
    logprob_ids: Sequence[int]
    """Ids whose log-probabilities are returned wherever one of them is generated."""
    stop_ids: Sequence[int] = ()
    """Ids that end a continuation, besides the model's own end of text."""
    stop: Sequence[str] = ()
    """Strings that end a continuation. An engine may ignore them: the caller cuts the text before
    them anyway."""
    allowed_ids: Sequence[int] | None = None
    """The only ids that may be generated; log-probabilities stay those of the whole vocabulary."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Settings under the engine's own names: ``temperature``, ``top_p`` and so on."""


@dataclass
class Completion:
    """The tokens that an engine generated for one prompt."""

    ids: Sequence[int]
    """Generated ids, at least one; with the stop id or end of text if that ended it."""
    logprobs: Sequence[Mapping[int, float]]
    """For each generated id: natural log-probabilities by id, under the whole vocabulary and before
    any temperature. At least the generated id's own; all of ``logprob_ids`` if it is one of
    them."""
    finish_reason: Literal["stop", "length"]
    """``length`` if ``max_tokens`` ended it; ``stop`` at a stop id, a stop string or the end."""


class Engine(ABC):
    """Continues prompts of token ids.

    Its coroutines run concurrently on one event loop in a separate thread. A cancelled one must
    stop computing. Any error becomes an :class:`~selfcorrect_rag.errors.EngineFailed`.
    """

    context_tokens: int | None = None
    """The model's context length in tokens, known after :meth:`open`; None if unknown."""

    @abstractmethod
    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        """Continue prompts together; returns their completions in the same order."""

    async def stream(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncGenerator[Sequence[int], None]:
        """Continue one prompt: yields generated ids as they come; by default all at the end."""
        (completion,) = await self.complete([prompt], request)
        yield completion.ids

    async def open(self) -> None:  # noqa: B027, as most have nothing to start
        """Start the engine; called before any other method."""

    async def close(self) -> None:  # noqa: B027
        """Free its resources. Runs once, last on its loop."""


class EngineRunner:
    """Runs an engine on one background event loop, for calls from any thread or loop.

    A cancelled or interrupted caller cancels its call in the engine; every other caller gets a
    result or an error. The thread ends when this object is closed or freed, or with the
    interpreter. A forked child's calls are refused.
    """

    def __init__(self, engine: Engine) -> None:
        """Open the engine; raises whatever :meth:`Engine.open` raises."""
        self.engine, self._name = engine, f"the engine ({type(engine).__name__})"
        self._closed, self._lock, self._process = False, threading.Lock(), os.getpid()
        self._thread = _EngineThread(engine)
        self._thread.start()
        weakref.finalize(self, self._thread.stop).atexit = False
        try:
            with wrap_errors(EngineFailed, self._name):
                self.run(engine.open())
        except BaseException:
            self.close()
            raise

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

    async def complete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        """Continue prompts; called on the engine's loop. Any error is an EngineFailed."""
        with wrap_errors(EngineFailed, self._name):
            given = await self.engine.complete(prompts, request)
            if problem := _problem(given, len(prompts), request):
                raise EngineFailed(f"{self._name} gave {problem}")
        return given

    async def stream(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncGenerator[Sequence[int], None]:
        """Yield generated ids as they come; called on the engine's loop."""
        with wrap_errors(EngineFailed, self._name):
            async with aclosing(self.engine.stream(prompt, request)) as stream:
                async for ids in stream:
                    yield ids

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
                call_or_fail = self._fail_if_closed(call)
                return asyncio.run_coroutine_threadsafe(call_or_fail, self._thread.loop)
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


class _EngineThread(threading.Thread):
    """The event loop of an engine; it holds no reference to the runner, which can be freed."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(name="engine", daemon=True)
        self.loop, self._engine, self._stopping = asyncio.new_event_loop(), engine, asyncio.Event()
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
        with suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self._stopping.set)
        if wait_seconds:
            self.join(wait_seconds)

    async def _serve(self) -> None:
        await self._stopping.wait()
        self.loop.set_exception_handler(lambda *_: None)  # callers that still wait get the errors
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.loop.shutdown_asyncgens()
        await self._engine.close()


def _problem(given: Sequence[Completion], prompts: int, request: Request) -> str | None:
    """Return why an engine's completions are invalid; None if they are valid."""
    if len(given) != prompts:
        return f"{len(given)} completions for {prompts} prompts"
    watched = set(request.logprob_ids)
    for each in given:
        ids, logprobs = len(each.ids), len(each.logprobs)
        if not 0 < ids <= request.max_tokens or ids != logprobs:
            return f"{ids} ids, log-probabilities of {logprobs}; 1 to {request.max_tokens} expected"
        if each.finish_reason not in ("stop", "length"):
            return f"a completion that ended by {each.finish_reason!r}"
        pairs = zip(each.ids, each.logprobs, strict=True)
        needed = (
            (i, by_id) for own, by_id in pairs for i in (watched if own in watched else [own])
        )
        if bad := {i for i, by_id in needed if math.isnan(by_id.get(i, math.nan))}:
            return f"no log-probability of the ids {sorted(bad)}"
    return None
