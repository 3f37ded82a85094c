"""Runs functions in threads, so that the event loop is not blocked.

:func:`in_thread` is for functions that wait (a user's retriever, a store, a sync model), and
:func:`off_loop` for our own computation on long texts. Both pass the caller's context on. If the
caller is cancelled, a function that has not begun does not begin.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

LONG = 20_000
"""Characters of documents, or a tenth of them written by a model, that take some milliseconds."""
WAITING_THREADS = 64
"""Functions that may wait at the same time; further ones start as these return."""

_pools: dict[str, ThreadPoolExecutor] = {}
"""Thread pools by name, started at the first use; a forked child starts its own."""
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_pools.clear)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return ``function(*args, **kwargs)``, run in a thread that may wait."""
    return await _submit("waiting", WAITING_THREADS, partial(function, *args, **kwargs))


async def off_loop(work: Callable[..., T], *arguments: object, long: bool = True) -> T:
    """Return ``work(*arguments)``: computed in a thread if it is ``long``, else at once.

    There is one thread for all runs: more would not compute sooner, and each would keep the event
    loop waiting for the interpreter's lock. ``work`` must not wait for others.
    """
    if not long:
        return work(*arguments)
    return await _submit("computing", 1, partial(work, *arguments))


async def _submit(name: str, threads: int, call: Callable[[], T]) -> T:
    if name not in _pools:
        _pools[name] = ThreadPoolExecutor(threads, f"selfcorrect-rag-{name}")
    run = partial(copy_context().run, _without_stop_iteration, call)
    return await asyncio.get_running_loop().run_in_executor(_pools[name], run)


def _without_stop_iteration(call: Callable[[], T]) -> T:
    try:
        return call()
    except StopIteration as error:  # a future refuses it, and the caller would wait forever
        raise RuntimeError(
            "StopIteration: an iterator was empty; give next() a default, as in next(it, None)"
        ) from error
