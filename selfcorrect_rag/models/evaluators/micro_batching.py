"""One worker for a model that many runs share: what waits together is computed together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Call(NamedTuple, Generic[Item, Result]):
    items: list[Item]
    results: Future[list[Result]]


class MicroBatcher(Generic[Item, Result]):
    """Merges the calls that wait while the worker is busy, and splits their results again.

    Calls come from any thread and any event loop. One that finds the worker free is computed at
    once: nothing waits for others to come. Where a merged computation fails, each of its calls is
    computed alone, so that one call's failure is its own. The worker ends with this object.
    """

    def __init__(
        self, compute: Callable[[list[Item]], list[Result]], *, most: int, name: str
    ) -> None:
        """Start the worker.

        Args:
            compute: one result for each item, in order; runs on the worker's thread only.
            most: items at which a merge is full, so that the first caller need not wait for the
                results of all others; a larger call goes alone.
            name: the worker's thread.
        """
        self._compute, self._most = compute, most
        self._waiting: deque[_Call[Item, Result]] = deque()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def run(self, items: Sequence[Item]) -> list[Result]:
        """The results of ``items``, from a thread that may block."""
        results = self._submit(items)
        try:
            return results.result()
        except BaseException:  # an interrupt of the caller too
            results.cancel()
            raise

    async def arun(self, items: Sequence[Item]) -> list[Result]:
        """The results of ``items``, from an event loop. A cancelled call is not computed."""
        return await asyncio.wrap_future(self._submit(items))

    def _submit(self, items: Sequence[Item]) -> Future[list[Result]]:
        call = _Call[Item, Result](list(items), Future())
        if not call.items:
            call.results.set_result([])
            return call.results
        self._waiting.append(call)
        # One job for each call: by the time that a job runs, others may have taken its call, but
        # there are never fewer jobs than calls.
        self._worker.submit(self._work)
        return call.results

    def _work(self) -> None:
        calls: list[_Call[Item, Result]] = []
        count = 0
        while self._waiting:
            if calls and count + len(self._waiting[0].items) > self._most:
                break
            call = self._waiting.popleft()
            if call.results.set_running_or_notify_cancel():
                calls.append(call)
                count += len(call.items)
        if calls:
            self._answer(calls)

    def _answer(self, calls: Sequence[_Call[Item, Result]]) -> None:
        try:
            results = self._compute([item for call in calls for item in call.items])
        except BaseException as error:  # whatever it is, a caller is waiting for it
            if len(calls) == 1:
                calls[0].results.set_exception(error)
                return
            for call in calls:
                self._answer([call])
            return
        start = 0
        for call in calls:
            call.results.set_result(results[start : start + len(call.items)])
            start += len(call.items)
