"""The loop in the background: whoever waits for it gets an answer, however it ends."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models.engines.background import BackgroundLoop

LIMIT = 15
"""Seconds after which a caller waits for good."""


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop("test")
    yield loop
    loop.close()


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def count() -> AsyncIterator[int]:
    for i in range(1_000_000):
        await asyncio.sleep(0)
        yield i


def how(call: Callable[[], Any]) -> str:
    """The name of what a call raises, or nothing."""
    try:
        call()
    except BaseException as error:
        return type(error).__name__
    return ""


def in_child(act: Callable[[], bool]) -> bool:
    """Whether ``act`` is true in a forked child, which may not take for ever over it."""
    child = os.fork()
    if not child:
        worker = threading.Thread(target=lambda: os._exit(0 if act() else 1), daemon=True)
        worker.start()
        worker.join(LIMIT)
        os._exit(2)
    return os.waitpid(child, 0)[1] == 0


async def test_calls_from_threads_and_loops(loop: BackgroundLoop) -> None:
    assert loop.run(double(2)) == 4
    assert await loop.arun(double(3)) == 6
    with pytest.raises(ZeroDivisionError):
        await loop.arun(fail())


async def fail() -> None:
    raise ZeroDivisionError


class Callers:
    """Callers of every sort, of whom some are waiting by the time that somebody closes."""

    def __init__(self) -> None:
        self.loop = BackgroundLoop("test")
        self.all_wait, self.to_come = threading.Event(), 12  # 4 threads, 2 loops of 4 calls each

    async def wait(self) -> None:
        self.to_come -= 1
        if not self.to_come:
            self.all_wait.set()
        await forever()

    def ask(self) -> None:
        self.loop.run(self.wait())

    def ask_again_and_again(self) -> None:
        while True:
            self.loop.run(double(1))

    def read(self) -> None:
        for _ in self.loop.iterate(count()):
            pass

    def ask_from_a_loop(self) -> None:
        async def read() -> None:
            async for _ in self.loop.aiterate(count()):
                pass

        async def ask() -> list[Any]:
            calls = [self.loop.arun(self.wait()) for _ in range(4)]
            return await asyncio.gather(*calls, read(), return_exceptions=True)

        assert {type(error) for error in asyncio.run(ask())} == {EngineFailed}
        raise EngineFailed("closed")

    def close(self) -> None:
        self.loop.close()


def test_closing_under_callers_of_all_sorts_a_hundred_times() -> None:
    """Each of them ends, and with EngineFailed; nobody who did not cancel is cancelled."""
    for _ in range(100):
        callers = Callers()
        with ThreadPoolExecutor(17) as pool:
            calls = [callers.ask] * 4 + [callers.ask_again_and_again] * 6
            calls += [callers.read] * 2 + [callers.ask_from_a_loop] * 2
            ends = [pool.submit(how, call) for call in calls]
            assert callers.all_wait.wait(LIMIT)
            closing = [pool.submit(callers.close) for _ in range(3)]
            assert {end.result(LIMIT) for end in ends} == {"EngineFailed"}
            assert [one.result(LIMIT) for one in closing] == [None] * 3
        assert not callers.loop._thread.is_alive()


def test_what_is_refused_is_refused_before_what_is_left_fails(loop: BackgroundLoop) -> None:
    """A call that comes while others clean up would otherwise outlive the loop."""
    cleaning, go_on = threading.Event(), threading.Event()

    async def slow_to_leave() -> None:
        try:
            await forever()
        finally:
            cleaning.set()
            await asyncio.to_thread(go_on.wait, LIMIT)

    with ThreadPoolExecutor(2) as pool:
        left = pool.submit(how, lambda: loop.run(slow_to_leave()))
        loop.run(double(1))
        closing = pool.submit(loop.close)
        assert cleaning.wait(LIMIT)
        assert how(lambda: loop.run(forever())) == "EngineFailed"
        go_on.set()
        assert left.result(LIMIT) == "EngineFailed"
        closing.result(LIMIT)


def test_closing_from_the_loops_own_thread(loop: BackgroundLoop) -> None:
    async def close() -> None:
        loop.close()
        loop.close()
        await forever()

    with pytest.raises(EngineFailed, match="has been closed"):
        loop.run(close())
    loop._thread.join(LIMIT)
    assert loop._loop.is_closed()


def test_what_ends_with_the_loop_runs_once_and_last() -> None:
    done: list[str] = []

    async def leave() -> None:
        try:
            await forever()
        finally:
            done.append("call")

    async def end() -> None:
        done.append("end")

    loop = BackgroundLoop("test", end)
    with ThreadPoolExecutor(1) as pool:
        left = pool.submit(how, lambda: loop.run(leave()))
        loop.run(double(1))
        loop.close()
        loop.close()
        assert left.result(LIMIT) == "EngineFailed"
    assert done == ["call", "end"]


def test_a_stream_between_two_items_is_closed_with_the_loop(loop: BackgroundLoop) -> None:
    closed = threading.Event()

    async def items() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            await asyncio.sleep(0)
            closed.set()

    stream = loop.iterate(items())
    assert next(stream) == 1
    loop.close()
    assert closed.is_set()
    with pytest.raises(EngineFailed):
        next(stream)
    other = loop.iterate(items())
    with pytest.raises(EngineFailed):
        next(other)


async def test_a_cancelled_caller_cancels_its_coroutine(loop: BackgroundLoop) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def watch() -> None:
        begun.set()
        try:
            await forever()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    caller = asyncio.create_task(loop.arun(watch()))
    await asyncio.to_thread(begun.wait, LIMIT)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert await asyncio.to_thread(cancelled.wait, LIMIT)


async def test_a_cancelled_reader_closes_what_it_reads(loop: BackgroundLoop) -> None:
    begun, closed = threading.Event(), threading.Event()

    async def items() -> AsyncIterator[int]:
        try:
            yield 1
            begun.set()
            await forever()
        finally:
            for _ in range(1000):  # the reader is through long before
                await asyncio.sleep(0)
            closed.set()

    async def read() -> None:
        async for _ in loop.aiterate(items()):
            pass

    reader = asyncio.create_task(read())
    await asyncio.to_thread(begun.wait, LIMIT)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await asyncio.to_thread(closed.wait, LIMIT)


def test_the_thread_ends_when_nobody_has_the_loop_any_more() -> None:
    ended = threading.Event()

    async def end() -> None:
        ended.set()

    loop = BackgroundLoop("test", end)
    thread = loop._thread
    assert loop.run(double(2)) == 4
    del loop
    gc.collect()
    thread.join(LIMIT)
    assert ended.is_set()
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
class TestForks:
    def test_a_loop_that_can_begin_anew_does(self) -> None:
        begun: list[int] = []

        async def end() -> None:
            begun.append(-os.getpid())

        loop = BackgroundLoop("test", end, lambda: begun.append(os.getpid()))
        stream = loop.iterate(count())
        assert next(stream) == 0

        def act() -> bool:
            again = loop.run(double(2)) == 4
            old = how(lambda: next(stream)) == "EngineFailed"
            loop.close()
            ended = begun == [os.getpid(), -os.getpid()]
            return again and old and ended and how(lambda: loop.run(double(2))) == "EngineFailed"

        assert in_child(act)
        assert next(stream) == 1
        assert loop.run(double(2)) == 4
        loop.close()
        assert begun == [-os.getpid()]

    def test_one_that_cannot_says_so(self) -> None:
        def refuse() -> None:
            raise EngineFailed("not here")

        loop = BackgroundLoop("test", after_fork=refuse)

        def act() -> bool:
            for _ in range(2):
                with pytest.raises(EngineFailed, match="not here"):
                    loop.run(double(2))
            loop.close()
            return how(lambda: loop.run(double(2))) == "EngineFailed"

        assert in_child(act)
        assert loop.run(double(2)) == 4
        loop.close()

    def test_a_fork_while_another_thread_is_at_it(self, loop: BackgroundLoop) -> None:
        """The lock may be held just then, by a thread that the child does not have."""
        with loop._lock:
            assert in_child(lambda: loop.run(double(2)) == 4)

    def test_closing_in_the_child_leaves_the_parents_end_alone(self) -> None:
        ended: list[int] = []

        async def end() -> None:
            ended.append(os.getpid())

        loop = BackgroundLoop("test", end)

        def act() -> bool:
            loop.close()
            return not ended

        assert in_child(act)
        assert loop.run(double(2)) == 4
        loop.close()
        assert ended == [os.getpid()]


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "freed"])
def test_the_interpreter_waits_for_the_last_work_of_a_loop(tmp_path: Path, kept: bool) -> None:
    # A thread that the interpreter stopped while it freed a model's memory aborted the process.
    done = tmp_path / "done"
    script = f"""
import asyncio, pathlib
from selfcorrect_rag.models.engines.background import BackgroundLoop

async def end():
    await asyncio.sleep(0.3)
    pathlib.Path({str(done)!r}).touch()

loop = BackgroundLoop("engine", end)
if not {kept}:
    del loop
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)

    assert done.exists()
