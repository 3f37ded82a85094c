"""Calls of a model in rounds: what to ask next is told once, for threads and for event loops.

A generator yields the calls that it wants made side by side and is sent their outcomes. It may
also yield a future, to go on when that is done, or at once where this thread cannot wait for it.
"""

import asyncio
import time
from collections.abc import Generator, Iterable
from concurrent.futures import Future, wait
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import ContextThreadPoolExecutor

from selfcorrect_rag.prompts.parts import as_text

Result = TypeVar("Result")

MOST_PATIENCE = 60.0
"""Most seconds to wait where a provider says when to come back (Retry-After)."""
_UNAVAILABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_NOT_FOR_US = frozenset({401})

# What is asked here is no part of an answer as it is streamed.
_CONFIG = RunnableConfig(tags=["nostream"])


class Call(NamedTuple):
    """A model, perhaps bound to options, and what it is asked."""

    model: Runnable[Any, Any]
    input: Any


class Outcome(NamedTuple):
    """What came of a call: an answer, or the error of its last attempt."""

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
        """The answer as the model gave it, where structured output was read from it."""
        return self.answer["raw"] if isinstance(self.answer, dict) else self.answer


class Cost(NamedTuple):
    """What calls took."""

    requests: int = 0
    prompt_tokens: int = 0
    """As far as the model tells."""
    tokens: int = 0

    @classmethod
    def of(cls, outcomes: Iterable[Outcome]) -> "Cost":
        """What these calls took together."""
        cost = cls()
        for outcome in outcomes:
            usage = getattr(outcome.message, "usage_metadata", None) or {}
            read, wrote = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
            cost = cost.plus(cls(outcome.requests, read, wrote))
        return cost

    def plus(self, other: "Cost") -> "Cost":
        """Both together."""
        return Cost(*(mine + its for mine, its in zip(self, other, strict=True)))


Rounds = Generator["list[Call] | Future[None]", list[Outcome], Result]


def run(rounds: Rounds[Result], max_concurrency: int) -> Result:
    """The result of ``rounds``, with at most ``max_concurrency`` calls at a time."""
    with closing(rounds), ContextThreadPoolExecutor(max_workers=max_concurrency) as pool:
        try:
            wanted = next(rounds)
            while True:
                if isinstance(wanted, Future):
                    # Who runs an event loop on this very thread would wait for itself.
                    wait([wanted], timeout=0 if _on_a_loop() else None)
                    wanted = rounds.send([])
                else:
                    wanted = rounds.send(list(pool.map(_made, wanted)))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


async def arun(rounds: Rounds[Result], max_concurrency: int) -> Result:
    """The async twin of :func:`run`."""
    places = asyncio.Semaphore(max_concurrency)

    async def made(call: Call) -> Outcome:
        async with places:
            return await _amade(call)

    with closing(rounds):
        try:
            wanted = next(rounds)
            while True:
                if isinstance(wanted, Future):
                    # Shielded: who waits may be cancelled, what they wait for may not.
                    await asyncio.shield(asyncio.wrap_future(wanted))
                    wanted = rounds.send([])
                else:
                    wanted = rounds.send(list(await asyncio.gather(*map(made, wanted))))
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _made(call: Call) -> Outcome:
    try:
        return Outcome(call.model.invoke(call.input, _CONFIG), None, 1)
    except Exception as error:
        if (seconds := patience(error)) is None:
            return Outcome(None, error, 1)
    time.sleep(seconds)
    try:
        return Outcome(call.model.invoke(call.input, _CONFIG), None, 2)
    except Exception as error:
        return Outcome(None, error, 2)


async def _amade(call: Call) -> Outcome:
    try:
        return Outcome(await call.model.ainvoke(call.input, _CONFIG), None, 1)
    except Exception as error:
        if (seconds := patience(error)) is None:
            return Outcome(None, error, 1)
    await asyncio.sleep(seconds)
    try:
        return Outcome(await call.model.ainvoke(call.input, _CONFIG), None, 2)
    except Exception as error:
        return Outcome(None, error, 2)


def patience(error: Exception) -> float | None:
    """Seconds after which to try once more, as the provider says, at most :data:`MOST_PATIENCE`.

    None where it does not say: a provider's own client has tried again by then, and
    ``model.with_retry()`` does so for one that has not.
    """
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        seconds = float(headers.get("retry-after") or headers.get("Retry-After") or "")
    except ValueError:  # not told, or as a date
        return None
    return min(max(seconds, 0.0), MOST_PATIENCE)


def is_refusal(error: Exception) -> bool:
    """Whether an error is about what was asked for, such as an option, not about the provider."""
    status = getattr(error, "status_code", None)
    if isinstance(status, int):
        return 400 <= status < 500 and status not in _UNAVAILABLE | _NOT_FOR_US
    return isinstance(error, (TypeError, ValueError, NotImplementedError, AttributeError))
