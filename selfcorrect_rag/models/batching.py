"""Batches of pairs: by length, and of concurrent runs."""

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
    """Merges calls that wait while the worker is busy into batches, and splits the results again.

    Calls come from any thread and any event loop. An idle worker computes a call at once, without
    waiting for more. If a merged batch fails, each of its calls is computed alone, so that a
    failure affects one call only. The worker ends with this object.
    """

    def __init__(
        self, compute: Callable[[list[Item]], list[Result]], *, most: int, name: str
    ) -> None:
        """Start the worker.

        Args:
            compute: one result for each item, in order; runs on the worker's thread only.
            most: maximum items of a merged batch, so that the first caller need not wait for all
                others; a larger call goes alone.
            name: the name of the worker's thread.
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
        # One job per call: an earlier job may have taken its call already, but there are never
        # fewer jobs than calls.
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


def batches(lengths: Sequence[int], most_tokens: int, pass_tokens: int) -> list[list[int]]:
    """Split pairs of these lengths into batches, minimising computed token positions.

    Args:
        lengths: tokens of each pair.
        most_tokens: maximum padded tokens of a batch; a longer pair goes alone.
        pass_tokens: fixed cost of a forward pass in tokens: where it is high, padding is cheaper
            than another pass.

    Returns:
        Indices of the pairs of each batch, shortest first.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    costs, starts = (
        [0],
        [0],
    )  # best split of the first n pairs: cost, start of its last batch
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        first = max(0, end - max(1, most_tokens // longest))
        cost, start = min(
            (costs[s] + pass_tokens + (end - s) * longest, s) for s in range(first, end)
        )
        costs.append(cost)
        starts.append(start)
    made, end = [], len(order)
    while end:
        made.append(order[starts[end] : end])
        end = starts[end]
    return made[::-1]
