"""Batches of model calls, written once as a generator, for threads and event loops.

A :data:`Calls` generator yields calls to make concurrently and is sent their results. It may also
yield a future, to continue when that is done, or at once where this thread cannot wait for it.
"""

import asyncio
import time
from collections.abc import Generator, Iterable
from concurrent.futures import Future, wait
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ContextThreadPoolExecutor

from selfcorrect_rag.models.chat.decisions import decision_usage
from selfcorrect_rag.prompts.parts import as_text

Result = TypeVar("Result")

MAX_RETRY_AFTER = 60.0
"""Maximum seconds to wait for a provider's Retry-After."""
_UNAVAILABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_UNAUTHORIZED = 401

_CONFIG = RunnableConfig(tags=["nostream"])  # these calls are not part of the streamed answer


class ModelCall(NamedTuple):
    """A model, perhaps with bound options, and its input."""

    model: Runnable[Any, Any]
    input: Any


class CallResult(NamedTuple):
    """An answer, or the error of the last attempt."""

    answer: Any
    error: Exception | None
    requests: int
    """Attempts, 1 or 2."""

    @property
    def text(self) -> str:
        """The answer's text; empty where there is none."""
        if self.answer is None or isinstance(self.answer, str):
            return self.answer or ""
        return as_text(self.message.content)

    @property
    def message(self) -> Any:
        """The raw message, also where structured output was parsed from it."""
        return self.answer["raw"] if isinstance(self.answer, dict) else self.answer


class CallUsage(NamedTuple):
    """Requests and tokens of calls; tokens as far as the model reports them."""

    requests: int = 0
    prompt_tokens: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, results: Iterable[CallResult]) -> "CallUsage":
        """The usage of these calls together."""
        usage = cls()
        for result in results:
            metadata = getattr(result.message, "usage_metadata", None) or {}
            read, written = metadata.get("input_tokens"), metadata.get("output_tokens")
            if not metadata:
                read, written = decision_usage(result.answer)
            usage = usage.plus(cls(result.requests, read or 0, written or 0))
        return usage

    def plus(self, other: "CallUsage") -> "CallUsage":
        """The sum of both."""
        return CallUsage(*(mine + its for mine, its in zip(self, other, strict=True)))


Calls = Generator["list[ModelCall] | Future[None]", list[CallResult], Result]
"""Yields calls, or a future to wait for; is sent the calls' results; returns its own result."""


def run(calls: Calls[Result], max_concurrency: int) -> Result:
    """The result of ``calls``, with at most ``max_concurrency`` of them at a time."""
    with closing(calls), ContextThreadPoolExecutor(max_workers=max_concurrency) as pool:
        try:
            wanted = next(calls)
            while True:
                results: list[CallResult] = []
                if isinstance(wanted, Future):
                    # On an event loop's own thread, waiting could deadlock.
                    wait([wanted], timeout=0 if _is_on_a_loop() else None)
                else:
                    results = list(pool.map(_invoke, wanted))
                wanted = calls.send(results)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


async def arun(calls: Calls[Result], max_concurrency: int) -> Result:
    """The async twin of :func:`run`."""
    semaphore = asyncio.Semaphore(max_concurrency)

    async def invoke(call: ModelCall) -> CallResult:
        async with semaphore:
            return await _ainvoke(call)

    with closing(calls):
        try:
            wanted = next(calls)
            while True:
                results: list[CallResult] = []
                if isinstance(wanted, Future):
                    # Shielded: the waiter may be cancelled, the future may not.
                    await asyncio.shield(asyncio.wrap_future(wanted))
                else:
                    results = list(await asyncio.gather(*map(invoke, wanted)))
                wanted = calls.send(results)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _invoke(call: ModelCall, attempt: int = 1) -> CallResult:
    try:
        return CallResult(call.model.invoke(call.input, _CONFIG), None, attempt)
    except Exception as error:
        if attempt == 2 or (seconds := retry_after(error)) is None:
            return CallResult(None, error, attempt)
    time.sleep(seconds)
    return _invoke(call, 2)


async def _ainvoke(call: ModelCall, attempt: int = 1) -> CallResult:
    try:
        return CallResult(await call.model.ainvoke(call.input, _CONFIG), None, attempt)
    except Exception as error:
        if attempt == 2 or (seconds := retry_after(error)) is None:
            return CallResult(None, error, attempt)
    await asyncio.sleep(seconds)
    return await _ainvoke(call, 2)


def retry_after(error: Exception) -> float | None:
    """A provider's Retry-After in seconds, at most :data:`MAX_RETRY_AFTER`.

    None without one: the provider's own client has retried by then, or ``model.with_retry()`` can.
    """
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        seconds = float(headers.get("retry-after") or headers.get("Retry-After") or "")
    except ValueError:  # absent, or a date
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


def is_refusal(error: Exception) -> bool:
    """Whether an error is about the request, such as an unsupported option, not the provider."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return 400 <= status < 500 and status not in (*_UNAVAILABLE, _UNAUTHORIZED)
    return isinstance(error, (TypeError, ValueError, NotImplementedError, AttributeError))
