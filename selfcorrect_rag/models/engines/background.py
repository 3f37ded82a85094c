"""An event loop in its own thread, for engines and connections that are bound to one loop."""

import asyncio
import atexit
import os
import threading
import time
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
)
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from selfcorrect_rag.errors import EngineFailed

T = TypeVar("T")
CLOSED = "this model has been closed: make a new one"
LAST_SECONDS = 10.0
"""How long the interpreter's exit waits for the loops' ends."""
_LOOPS: "weakref.WeakSet[BackgroundLoop]" = weakref.WeakSet()
_THREADS: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""Threads of loops, also of freed ones: each ends after its last work."""


class BackgroundLoop:
    """Runs coroutines for callers in any thread and any other event loop.

    A cancelled or interrupted caller cancels its coroutine. Every other caller gets a result or an
    error, also when the loop is closed meanwhile. The thread ends when this object is closed or
    freed, or with the interpreter. A forked child starts a new thread.
    """

    def __init__(
        self,
        name: str,
        end: Callable[[], Awaitable[None]] | None = None,
        after_fork: Callable[[], None] | None = None,
    ) -> None:
        """Start the thread.

        Args:
            name: the thread's name.
            end: runs last on the loop, in the process that started its thread. It must not refer to
                this object, which would then never be freed.
            after_fork: called at the first use in a forked child; an error refuses the use.
        """
        self._name, self._end, self._after_fork = name, end, after_fork
        self._closed, self._lock = False, threading.Lock()
        self._start()
        _LOOPS.add(self)

    def _start(self) -> None:
        self._process, self._loop = os.getpid(), asyncio.new_event_loop()
        # The thread keeps no reference to this object, so that it can be freed.
        self._thread = threading.Thread(
            target=_live, args=(self._loop, self._end), name=self._name, daemon=True
        )
        _THREADS.add(self._thread)
        self._thread.start()
        weakref.finalize(self, _stop, self._loop, self._process).atexit = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end, from a thread that may block.

        Raises:
            EngineFailed: it is closed, or was closed before there was a result.
        """
        result = self._submit(coroutine)
        try:
            return result.result()
        except BaseException:  # an interrupt of the caller too
            result.cancel()
            raise

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run to the end, from another event loop; errors as :meth:`run`."""
        return await asyncio.wrap_future(self._submit(coroutine))

    def iterate(self, items: AsyncIterator[T]) -> Generator[T, None, None]:
        """Items as they come, from a thread that may block; errors as :meth:`run`."""
        stream = _Stream(items)
        try:
            while True:
                try:
                    yield self.run(stream.next())
                except StopAsyncIteration:
                    return
        finally:
            with suppress(EngineFailed):  # closing has closed them
                self.run(stream.close())

    async def aiterate(self, items: AsyncIterator[T]) -> AsyncGenerator[T, None]:
        """Items as they come, from another event loop; errors as :meth:`run`."""
        stream = _Stream(items)
        try:
            while True:
                try:
                    yield await self.arun(stream.next())
                except StopAsyncIteration:
                    return
        finally:
            with suppress(EngineFailed):
                await self.arun(stream.close())

    def close(self) -> None:
        """Refuse new calls, fail running ones, and wait until the thread has ended.

        From any thread, any number of times. On the loop's own thread it does not wait, and in a
        forked child it leaves the parent's loop alone.
        """
        with self._lock:
            first, self._closed = not self._closed, True
            if self._process != os.getpid():
                return
            if first:
                _stop(self._loop, self._process)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        result: Future[T] = Future()
        try:
            with self._lock:  # so that every accepted coroutine is on the loop before its end
                if self._closed:
                    raise EngineFailed(CLOSED)
                if self._process != os.getpid():
                    if self._after_fork is not None:
                        self._after_fork()
                    self._start()
                self._loop.call_soon_threadsafe(_work, self._loop, coroutine, result)
        except BaseException:
            coroutine.close()
            raise
        return result

    def _forked(self) -> None:
        self._lock = threading.Lock()  # a thread of the parent may have held it


async def gather(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; where one fails or the caller is cancelled, the others are too."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _stop(loop: asyncio.AbstractEventLoop, process: int) -> None:
    if process == os.getpid():
        with suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(loop.stop)


def _live(loop: asyncio.AbstractEventLoop, end: Callable[[], Awaitable[None]] | None) -> None:
    """The thread's target."""
    loop.run_forever()
    try:
        loop.run_until_complete(_finish(end))
    finally:
        loop.close()


async def _finish(end: Callable[[], Awaitable[None]] | None) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()  # streams between two items
    if end is not None:
        await end()


def _work(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], result: Future[T]
) -> None:
    """Run ``coroutine`` as a task of ``loop``, and put its outcome into ``result``.

    Unlike ``asyncio.run_coroutine_threadsafe``, a caller gets ``CancelledError`` only if it was
    cancelled itself; if closing cancels the task, it gets an error.
    """
    task = loop.create_task(coroutine)

    def deliver(task: asyncio.Task[T]) -> None:
        if not result.set_running_or_notify_cancel():  # the caller was cancelled
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio logs nothing
        elif task.cancelled():
            result.set_exception(EngineFailed(CLOSED))
        elif (error := task.exception()) is not None:
            result.set_exception(error)
        else:
            result.set_result(task.result())

    def leave(result: Future[T]) -> None:
        if result.cancelled():
            with suppress(RuntimeError):  # the loop has ended, and the task with it
                loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(deliver)
    result.add_done_callback(leave)


class _Stream(Generic[T]):
    """An async iterator on a background loop, for one caller."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items, self._process = items, os.getpid()
        self._turn = asyncio.Lock()  # a cancelled call may still be running at close

    async def next(self) -> T:
        if self._process != os.getpid():
            raise EngineFailed("a stream does not go on in a forked process: begin it there")
        async with self._turn:
            return await anext(self._items)

    async def close(self) -> None:
        close = getattr(self._items, "aclose", None)
        if close is not None and self._process == os.getpid():
            async with self._turn:
                await close()


@atexit.register
def _stop_all() -> None:
    """A thread that frees a model while the interpreter goes away can abort the process."""
    for loop in list(_LOOPS):
        _stop(loop._loop, loop._process)
    deadline = time.monotonic() + LAST_SECONDS
    for thread in list(_THREADS):
        thread.join(max(0.0, deadline - time.monotonic()))


def _forked() -> None:
    _THREADS.clear()  # they run in the parent alone
    for loop in _LOOPS:
        loop._forked()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forked)
