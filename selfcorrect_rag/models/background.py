"""An event loop in a thread of its own, for engines and connections that are bound to one loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from selfcorrect_rag.errors import EngineFailed

T = TypeVar("T")


class BackgroundLoop:
    """Runs coroutines for callers in any thread and any other event loop.

    A cancelled or interrupted caller cancels its coroutine here.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end, from a thread that may block."""
        future = self._submit(coroutine)
        try:
            return future.result()
        except BaseException:  # an interrupt of the caller too
            future.cancel()
            raise

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end, from another event loop."""
        return await asyncio.wrap_future(self._submit(coroutine))

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Items as they come, from a thread that may block."""
        try:
            while True:
                try:
                    yield self.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            self.run(_close(items))

    async def aiterate(self, items: AsyncIterator[T]) -> AsyncIterator[T]:
        """Items as they come, from another event loop."""
        try:
            while True:
                try:
                    yield await self.arun(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            await self.arun(_close(items))

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop.is_closed():
            coroutine.close()
            raise EngineFailed("this LLM has been closed: make a new one")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Cancel what is running and end the thread; may be called again."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def together(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; where one fails or the caller is cancelled, the others are too."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _next(items: AsyncIterator[T]) -> T:
    return await anext(items)


async def _close(items: AsyncIterator[Any]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


async def _cancel_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
