"""Runs an engine for callers in any thread and event loop: limits, retries, errors, closing."""

import asyncio
import math
import random
import time
import weakref
from collections import deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from selfcorrect_rag.errors import EngineFailed, wrap_errors
from selfcorrect_rag.models.engines.background import BackgroundLoop
from selfcorrect_rag.models.engines.engine import Completion, Engine, EngineUnavailable, Request

T = TypeVar("T")
FIRST_BACKOFF, LONGEST_BACKOFF = 0.25, 4.0
"""Maximum backoff in seconds before the second attempt, and before any attempt."""
PROBE_INTERVAL = 1.0
"""Seconds between two probes of an engine after retries have ended."""


class EngineRunner:
    """Runs an engine on one background event loop, for calls from any thread or loop.

    At most ``in_flight`` prompts are in the engine; further calls wait in order. Calls are retried
    while the engine is unavailable. A cancelled call is cancelled in the engine. Close it when
    done: running calls then fail.
    """

    def __init__(
        self, engine: Engine, *, in_flight: int | None = None, retry_seconds: float = 0.0
    ) -> None:
        """Open the engine.

        Args:
            engine: one that is not open yet.
            in_flight: maximum number of concurrent prompts; the engine's own by default.
            retry_seconds: how long to retry while it is unavailable.

        Raises:
            EngineFailed: or any other error of :meth:`Engine.open`.
        """
        self.engine, self._in_flight, self._retry_seconds = engine, in_flight, retry_seconds
        self._name = f"the engine ({type(engine).__name__})"
        # A weak proxy: a reference cycle would hold a model's memory until garbage collection.
        after_fork = partial(EngineRunner._after_fork, weakref.proxy(self))
        self._loop = BackgroundLoop("engine", engine.close, after_fork)
        try:
            self._loop.run(self._open())
        except BaseException:
            self.close()
            raise

    @property
    def in_flight(self) -> int:
        """Maximum number of prompts in the engine at a time."""
        return self._in_flight or self.engine.in_flight

    def run(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the engine's loop, with retries, from a thread that may block."""
        return self._loop.run(self._retries.call(attempt))

    def complete(self, prompts: Sequence[Sequence[int]], request: Request) -> list[Completion]:
        """Continue prompts, from a thread that may block.

        Raises:
            EngineFailed: the engine raised, is unavailable for too long, or is closed.
        """
        return self._loop.run(self.complete_on_loop(prompts, request))

    async def acomplete(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        """The async twin of :meth:`complete`."""
        return await self._loop.arun(self.complete_on_loop(prompts, request))

    async def complete_on_loop(
        self, prompts: Sequence[Sequence[int]], request: Request
    ) -> list[Completion]:
        """:meth:`complete` for callers on the engine's loop."""
        if request.keep is None or self.engine.prunes:
            return await self._call(prompts, request)
        begun = await self._call(prompts, replace(request, max_tokens=1, keep=None))
        going = [i for i, each in enumerate(begun) if each.finish_reason == "length"]
        kept = set(request.keep(begun))
        for i in set(going) - kept:
            begun[i].finish_reason = "pruned"
        going = [i for i in going if i in kept]
        if going and request.max_tokens > 1:
            rest = replace(request, max_tokens=request.max_tokens - 1, keep=None)
            further = await self._call([[*prompts[i], *begun[i].ids] for i in going], rest)
            for i, more in zip(going, further, strict=True):
                ids, logprobs = [*begun[i].ids, *more.ids], [*begun[i].logprobs, *more.logprobs]
                begun[i] = Completion(ids, logprobs, more.finish_reason)
        return begun

    def stream(
        self, prompt: Sequence[int], request: Request
    ) -> Generator[Sequence[int], None, None]:
        """Generated ids as they come, from a thread that may block; errors as :meth:`complete`.

        A broken stream is not retried, since its tokens cannot be taken back.
        """
        return self._loop.iterate(self._stream(prompt, request))

    def astream(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncGenerator[Sequence[int], None]:
        """The async twin of :meth:`stream`."""
        return self._loop.aiterate(self._stream(prompt, request))

    def close(self) -> None:
        """Close the engine; calls that are running fail. May be repeated, from any thread."""
        self._loop.close()

    async def _open(self) -> None:
        with wrap_errors(EngineFailed, self._name):
            await self.engine.open()
        self._begin()

    def _begin(self) -> None:
        self._semaphore = WeightedSemaphore(self.in_flight)
        self._retries = Retries(self._retry_seconds, self.engine.is_up)

    def _after_fork(self) -> None:
        self.engine.after_fork()
        self._begin()

    async def _call(self, prompts: Sequence[Sequence[int]], request: Request) -> list[Completion]:
        async def attempt() -> list[Completion]:
            with wrap_errors(EngineFailed, self._name):
                given = await self.engine.complete(prompts, request)
                if wrong := _wrong(given, len(prompts), request):
                    raise EngineFailed(f"{self._name} gave {wrong}")
            return given

        async with self._semaphore.hold(len(prompts)):
            return await self._retries.call(attempt)

    async def _stream(
        self, prompt: Sequence[int], request: Request
    ) -> AsyncIterator[Sequence[int]]:
        stream: AsyncIterator[Sequence[int]]

        async def following() -> Sequence[int] | None:
            with wrap_errors(EngineFailed, self._name):
                return await anext(stream, None)

        async def begin() -> Sequence[int] | None:
            nonlocal stream
            stream = self.engine.stream(prompt, request)
            return await following()

        async with self._semaphore.hold(1):
            ids = await self._retries.call(begin)
            try:
                while ids is not None:
                    yield ids
                    ids = await following()
            finally:
                if (aclose := getattr(stream, "aclose", None)) is not None:
                    await aclose()


def _wrong(given: Sequence[Completion], prompts: int, request: Request) -> str | None:
    """Why an engine's completions are invalid; None if they are valid."""
    if len(given) != prompts:
        return f"{len(given)} completions for {prompts} prompts"
    wanted = set(request.logprob_ids)
    for completion in given:
        ids, logprobs = completion.ids, completion.logprobs
        if not 0 < len(ids) <= request.max_tokens or len(logprobs) != len(ids):
            return (
                f"{len(ids)} ids and log-probabilities of {len(logprobs)} where up to "
                f"{request.max_tokens} were asked for"
            )
        if completion.finish_reason not in ("stop", "length", "pruned"):
            return f"a completion that ended by {completion.finish_reason!r}"
        for token_id, by_id in zip(ids, logprobs, strict=True):
            needed = wanted if token_id in wanted else {token_id}
            if missing := needed - by_id.keys():
                return f"no log-probability of the ids {sorted(missing)}"
            if any(math.isnan(by_id[i]) for i in needed):
                return "a log-probability that is no number"
    return None


class WeightedSemaphore:
    """A fair semaphore of which callers acquire several units at once."""

    def __init__(self, units: int) -> None:
        self._free, self._units = units, units
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, wanted: int) -> AsyncIterator[None]:
        """Hold ``wanted`` units, at most all, for a ``with`` block."""
        wanted = min(wanted, self._units)
        if self._waiting or self._free < wanted:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((wanted, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.cancelled():
                    self._release(0)  # later waiters may fit
                else:  # it had just acquired the units
                    self._release(wanted)
                raise
        else:
            self._free -= wanted
        try:
            yield
        finally:
            self._release(wanted)

    def _release(self, units: int) -> None:
        self._free += units
        while self._waiting:
            wanted, turn = self._waiting[0]
            if not turn.cancelled():
                if wanted > self._free:
                    return
                self._free -= wanted
                turn.set_result(None)
            self._waiting.popleft()


class Retries:
    """Retries calls while an engine is unavailable, for ``seconds`` from the first failure.

    The time is shared by all calls: while the engine is unavailable, one probe at a time runs and
    all calls wait for it. Afterwards calls fail at once, and one of them probes from time to time.
    Any answer resets this. For use on one event loop.
    """

    def __init__(
        self,
        seconds: float,
        probe: Callable[[], Awaitable[bool]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start without failures.

        Args:
            seconds: how long to retry.
            probe: whether the engine takes requests; cheap.
            clock: a monotonic clock in seconds.
        """
        self._seconds, self._probe, self._clock = seconds, probe, clock
        self._error: EngineUnavailable | None = None  # the latest since the last answer
        self._since = self._probed = 0.0
        self._probing: asyncio.Task[bool] | None = None

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of ``attempt``, which is retried where it raises :class:`EngineUnavailable`.

        Raises:
            EngineUnavailable: the time is over. Any other error of the attempt is raised at once.
        """
        backoff, first = FIRST_BACKOFF, float("inf")
        while True:
            if self._error is not None:
                await self._wait_until_up()
            try:
                answer = await attempt()
            except EngineUnavailable as error:
                now = self._clock()
                if self._error is None:
                    self._since = now
                self._error = error
                # Answers to other calls do not extend this call's time.
                first = min(first, now)
                if now >= min(first, self._since) + self._seconds:
                    raise
                await asyncio.sleep(random.uniform(0, backoff))
                backoff = min(2 * backoff, LONGEST_BACKOFF)
            else:
                self._error = None
                return answer

    async def _wait_until_up(self) -> None:
        """Return when the engine is up; raise its last error when the time is over."""
        error, now = self._error, self._clock()
        if now < self._since + self._seconds:
            self._probing = self._probing or asyncio.create_task(self._probe_until_up())
        elif self._probing is None and now >= self._probed + min(PROBE_INTERVAL, self._seconds):
            self._probing = asyncio.create_task(self._probe_until_up())
        else:  # another call has just probed, or is probing
            raise EngineUnavailable(str(error)) from error
        if not await asyncio.shield(self._probing):
            raise EngineUnavailable(str(error)) from error

    async def _probe_until_up(self) -> bool:
        """Whether the engine came back in time; probes at least once."""
        backoff = FIRST_BACKOFF
        try:
            while True:
                self._probed = self._clock()
                if await self._probe() or self._error is None:
                    return True
                left = self._since + self._seconds - self._clock()
                if left <= 0:
                    return False
                await asyncio.sleep(min(left, random.uniform(backoff / 2, backoff)))
                backoff = min(2 * backoff, LONGEST_BACKOFF)
        finally:
            self._probing = None
