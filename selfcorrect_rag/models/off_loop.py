"""Runs computation on long texts in a thread, so that the event loop is not blocked.

There is one thread for all runs: more of them would not compute sooner, and each would keep the
event loop waiting for its turn of the interpreter. Nothing that waits for others runs there.
"""

import asyncio
import gc
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")

LONG = 20_000
"""Characters of documents, or a tenth of them written by a model, that take some milliseconds."""


def _worker() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="selfcorrect-rag-texts")


_WORKER = _worker()


async def off_loop(work: Callable[..., T], *arguments: object, long: bool = True) -> T:
    """The result of ``work(*arguments)``, from the thread where it is ``long``, else at once.

    The thread has the caller's context, so that events are emitted and calls are counted as they
    would be here. Work whose caller is cancelled is not begun, or its result is dropped.
    """
    if not long:
        return work(*arguments)
    run = copy_context().run
    return await asyncio.get_running_loop().run_in_executor(_WORKER, run, work, *arguments)


def spare_from_collection() -> None:
    """Take all objects that there are out of garbage collection, as servers do with their models.

    A full collection looks at every object that torch and transformers have made, which takes the
    event loop's turn for a tenth of a second.
    """
    gc.collect()
    gc.freeze()


def _forked() -> None:
    global _WORKER
    _WORKER = _worker()  # a thread of the parent's is not here


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forked)
