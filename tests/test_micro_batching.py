"""Calls that wait together are computed together, and fail alone."""

import asyncio
import threading
from typing import Any

from selfcorrect_rag.models.batching import MicroBatcher


class Gate:
    """A computation that waits to be let go, and fails on negative numbers."""

    def __init__(self, most: int = 100) -> None:
        self.busy, self.go, self.seen = threading.Event(), threading.Event(), list[list[int]]()
        self.batcher = MicroBatcher(self.compute, most=most, name="gate")

    def compute(self, items: list[int]) -> list[int]:
        self.seen.append(items)
        self.busy.set()
        assert self.go.wait(20)
        if min(items) < 0:
            raise ValueError(f"negative: {min(items)}")
        return [item * 2 for item in items]

    async def together(self, *calls: list[int], cancel: int | None = None) -> list[Any]:
        """The first call, and when it is being computed all others; results or errors."""
        tasks = [asyncio.ensure_future(self.batcher.arun(calls[0]))]
        await asyncio.to_thread(self.busy.wait, 20)
        tasks += [asyncio.ensure_future(self.batcher.arun(call)) for call in calls[1:]]
        await asyncio.sleep(0)
        if cancel is not None:
            tasks[cancel].cancel()
            await asyncio.sleep(0)
        self.go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)


async def test_what_waits_is_merged_in_order() -> None:
    gate = Gate()
    assert await gate.together([1], [2, 3], [], [4]) == [[2], [4, 6], [], [8]]
    assert gate.seen == [[1], [2, 3, 4]]


async def test_a_merge_is_bounded_and_a_large_call_goes_alone() -> None:
    gate = Gate(most=3)
    results = await gate.together([0], [1, 2], [3], [4], [5, 6, 7, 8], [9])
    assert results == [[0], [2, 4], [6], [8], [10, 12, 14, 16], [18]]
    assert gate.seen == [[0], [1, 2, 3], [4], [5, 6, 7, 8], [9]]


async def test_a_failure_stays_with_its_call() -> None:
    gate = Gate()
    first, good, bad, other = await gate.together([1], [2], [3, -4], [5])
    assert (first, good, other) == ([2], [4], [10])
    assert str(bad) == "negative: -4"
    assert gate.seen == [[1], [2, 3, -4, 5], [2], [3, -4], [5]]


async def test_a_cancelled_call_is_not_computed() -> None:
    gate = Gate()
    first, cancelled, other = await gate.together([1], [2], [3], cancel=1)
    assert (first, other) == ([2], [6])
    assert isinstance(cancelled, asyncio.CancelledError)
    assert gate.seen == [[1], [3]]
