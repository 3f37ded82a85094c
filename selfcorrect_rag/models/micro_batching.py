"""One worker for a model that many runs share: what waits together is computed together."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class MicroBatcher(Generic[Item, Result]):
    """Merges the calls that wait while the worker is busy, and splits the results again.

    A call that comes when nothing waits is computed at once: there is no delay to collect others.
    Where a merged computation fails, each of its calls is computed alone, so that one call's
    failure is its own.
    """

    def __init__(self, compute: Callable[[list[Item]], list[Result]], name: str) -> None:
        """``compute`` gives one result for each item, in order, on one thread of its own."""
        self._compute = compute
        self._waiting: list[tuple[list[Item], Future[list[Result]]]] = []
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, items: Sequence[Item]) -> list[Result]:
        """The results of ``items``, from a thread that may block."""
        return self._submit(items).result()

    async def arun(self, items: Sequence[Item]) -> list[Result]:
        """The results of ``items``, from an event loop."""
        return await asyncio.wrap_future(self._submit(items))

    def _submit(self, items: Sequence[Item]) -> Future[list[Result]]:
        future: Future[list[Result]] = Future()
        if not items:
            future.set_result([])
            return future
        with self._wake:
            self._waiting.append((list(items), future))
            self._wake.notify()
        return future

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._waiting:
                    self._wake.wait()
                calls, self._waiting = self._waiting, []
            # A caller that was cancelled before its turn wants no result.
            self._answer([c for c in calls if c[1].set_running_or_notify_cancel()])

    def _answer(self, calls: list[tuple[list[Item], Future[list[Result]]]]) -> None:
        if not calls:
            return
        try:
            results = self._compute([item for items, _ in calls for item in items])
        except Exception as error:
            if len(calls) == 1:
                calls[0][1].set_exception(error)
                return
            for call in calls:
                self._answer([call])
            return
        start = 0
        for items, future in calls:
            future.set_result(results[start : start + len(items)])
            start += len(items)
