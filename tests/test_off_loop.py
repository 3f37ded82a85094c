"""Functions in threads: context, errors, cancellation and forks."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from selfcorrect_rag.models.off_loop import in_thread, off_loop

MARK: ContextVar[str] = ContextVar("mark", default="none")


def where() -> tuple[int, str]:
    return threading.get_ident(), MARK.get()


@pytest.mark.parametrize("run", [in_thread, off_loop])
async def test_a_function_runs_in_a_thread_with_the_callers_context(
    run: Callable[..., Any],
) -> None:
    MARK.set("here")
    thread, mark = await run(where)
    assert (thread == threading.get_ident(), mark) == (False, "here")


async def test_short_work_runs_at_once() -> None:
    assert (await off_loop(where, long=False))[0] == threading.get_ident()


@pytest.mark.parametrize("run", [in_thread, off_loop])
async def test_stop_iteration_becomes_an_error(run: Callable[..., Any]) -> None:
    """A future refuses a StopIteration: its caller waited forever."""
    with pytest.raises(RuntimeError, match="give next\\(\\) a default"):
        await asyncio.wait_for(run(next, iter([])), 30)


async def test_waiting_functions_do_not_wait_for_each_other() -> None:
    barrier = threading.Barrier(16)
    given = await asyncio.gather(*(in_thread(barrier.wait, timeout=30) for _ in range(16)))
    assert sorted(given) == list(range(16))


async def test_a_cancelled_caller_leaves_the_thread_to_the_others() -> None:
    begun, go = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go.wait(30)

    task = asyncio.create_task(off_loop(wait))
    assert await in_thread(begun.wait, 30)
    ran: list[str] = []
    queued = asyncio.create_task(off_loop(ran.append, "queued"))
    await asyncio.sleep(0)
    for one in (task, queued):
        one.cancel()
    assert await asyncio.gather(task, queued, return_exceptions=True)
    go.set()
    await off_loop(ran.append, "next")
    assert ran == ["next"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_threads_of_its_own() -> None:
    async def both() -> list[str]:
        return [await in_thread(str, 1), await off_loop(str, 2)]

    assert asyncio.run(both()) == ["1", "2"]
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if asyncio.run(asyncio.wait_for(both(), 30)) == ["1", "2"] else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
