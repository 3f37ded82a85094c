"""A bound on what is in flight."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Places:
    """So many prompts at a time; calls wait in order, and one that is larger goes alone."""

    def __init__(self, count: int) -> None:
        self._free, self._count = count, count
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def take(self, wanted: int) -> AsyncIterator[None]:
        """Hold ``wanted`` places for the time of a ``with`` block."""
        wanted = min(wanted, self._count)
        if self._waiting or self._free < wanted:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((wanted, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it was given the places just before
                    self._give(wanted)
                raise
        else:
            self._free -= wanted
        try:
            yield
        finally:
            self._give(wanted)

    def _give(self, places: int) -> None:
        self._free += places
        while self._waiting and (self._waiting[0][1].cancelled() or self._fits()):
            wanted, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._free -= wanted
                turn.set_result(None)

    def _fits(self) -> bool:
        return self._waiting[0][0] <= self._free
