"""Calls a language model for many requests at a time, sync or async, and keeps each outcome."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import as_completed
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import Runnable
from langchain_core.runnables.config import ContextThreadPoolExecutor

from selfcorrect_rag.errors import describe_error


@dataclass
class ModelCall:
    """A request to a model and its outcome; made again while the answer is malformed."""

    key: str
    """Its key in the journal."""
    prompt: str
    read: Callable[[Any], Mapping[str, Any] | None]
    """Fields of the journal's row from an answer; None where it is malformed. May raise."""
    max_attempts: int = 1
    answers: list[Any] = field(default_factory=list)
    """Messages or texts of the model, in order."""
    row: Mapping[str, Any] | None = None
    """Fields from the last answer; None where it failed or stayed malformed."""
    error: str = ""
    """The exception of the model or of ``read``, where one was raised."""

    @property
    def is_open(self) -> bool:
        """Whether it is still to be made, or made again."""
        return self.row is None and not self.error and len(self.answers) < self.max_attempts

    def take(self, answer: Any) -> None:
        """Read an answer."""
        self.answers.append(answer)
        self.row = self.read(answer)


class ModelCalls:
    """Makes calls with a bounded concurrency, and gives up where the model fails throughout."""

    def __init__(
        self,
        calls: Iterable[ModelCall],
        keep: Callable[[ModelCall], object],
        *,
        max_concurrency: int,
        max_failures: int,
    ) -> None:
        """Prepare; nothing is called before :meth:`run` or :meth:`arun`.

        Args:
            calls: taken one after another as workers are free, so they may be generated.
            keep: called with each finished call, by one worker at a time.
            max_concurrency: most calls at a time, at least 1.
            max_failures: calls in a row that may raise before the rest is dropped.
        """
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency is {max_concurrency}; some call must be made")
        self._calls, self._keep = iter(calls), keep
        self._max_concurrency, self._max_failures = max_concurrency, max_failures
        self._lock, self._failures, self._stopped = threading.Lock(), 0, False
        self.gave_up = ""
        """Error of the last call where the run gave up, else empty."""

    def run(self, model: Runnable[Any, Any]) -> None:
        """Make all calls, in threads."""

        def work() -> None:
            while call := self._next():
                try:
                    while call.is_open:
                        call.take(model.invoke(call.prompt))
                except Exception as error:
                    call.error = describe_error(error)
                self._finish(call)

        with ContextThreadPoolExecutor(max_workers=self._max_concurrency) as pool:
            try:
                for worker in as_completed(pool.submit(work) for _ in range(self._max_concurrency)):
                    worker.result()  # one that could not keep a call ends the others
            finally:
                self._stopped = True

    async def arun(self, model: Runnable[Any, Any]) -> None:
        """The async twin of :meth:`run`, in tasks."""

        async def work() -> None:
            while call := self._next():
                try:
                    while call.is_open:
                        call.take(await model.ainvoke(call.prompt))
                except Exception as error:
                    call.error = describe_error(error)
                self._finish(call)

        workers = [asyncio.create_task(work()) for _ in range(self._max_concurrency)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()

    def _next(self) -> ModelCall | None:
        with self._lock:
            return None if self._stopped else next(self._calls, None)

    def _finish(self, call: ModelCall) -> None:
        with self._lock:
            self._keep(call)
            self._failures = self._failures + 1 if call.error else 0
            if self._failures >= self._max_failures:
                self.gave_up, self._stopped = call.error, True
