"""How long calls wait for a server that is away: what one of them learns, all know."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from selfcorrect_rag.errors import EngineFailed

T = TypeVar("T")
SHORTEST, LONGEST = 0.25, 4.0
"""Seconds between two attempts: the first pause at most, and any."""
LOOK = 1.0
"""Seconds between two looks at a server that was given up."""


class Unavailable(EngineFailed):
    """The server could not be reached, or asked for patience."""


class Patience:
    """Repeats what a server could not answer, for so many seconds from the first such failure on.

    They are counted once for all calls: while the server is away one probe at a time looks for it
    and everybody waits for that. When they are over, calls fail at once, and one of them looks
    again now and then. An answer begins everything anew. To be used on one event loop.
    """

    def __init__(
        self,
        seconds: float,
        probe: Callable[[], Awaitable[bool]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is asked yet.

        Args:
            seconds: how long to go on trying.
            probe: whether the server takes requests; cheap.
            clock: seconds, from any point in time.
        """
        self._seconds, self._probe, self._clock = seconds, probe, clock
        self._error: Unavailable | None = None  # the latest since there was an answer
        self._since = self._looked = 0.0
        self._watch: asyncio.Task[bool] | None = None

    async def call(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What ``attempt`` gives, which is repeated where it raises :class:`Unavailable`.

        Raises:
            Unavailable: patience is over; any other error of the attempt, at once.
        """
        pause, first = SHORTEST, float("inf")
        while True:
            if self._error is not None:
                await self._admitted()
            try:
                answer = await attempt()
            except Unavailable as error:
                now = self._clock()
                if self._error is None:
                    self._since = now
                self._error = error
                # A server that answers others all the while does not renew this call's patience.
                first = min(first, now)
                if now >= min(first, self._since) + self._seconds:
                    raise
                await asyncio.sleep(random.uniform(0, pause))
                pause = min(2 * pause, LONGEST)
            else:
                self._error = None
                return answer

    async def _admitted(self) -> None:
        """Return when the server may be asked; raise what it said last where patience is over."""
        error, now = self._error, self._clock()
        if now < self._since + self._seconds:
            self._watch = self._watch or asyncio.create_task(self._look_out())
        elif self._watch is None and now >= self._looked + min(LOOK, self._seconds):
            self._watch = asyncio.create_task(self._look_out())
        else:  # somebody else has looked just now, or is at it
            raise Unavailable(str(error)) from error
        if not await asyncio.shield(self._watch):
            raise Unavailable(str(error)) from error

    async def _look_out(self) -> bool:
        """Whether the server came back while there was patience left; it is looked for once."""
        pause = SHORTEST
        try:
            while True:
                self._looked = self._clock()
                if await self._probe() or self._error is None:
                    return True
                left = self._since + self._seconds - self._clock()
                if left <= 0:
                    return False
                await asyncio.sleep(min(left, random.uniform(pause / 2, pause)))
                pause = min(2 * pause, LONGEST)
        finally:
            self._watch = None
