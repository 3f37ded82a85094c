"""Calls a function that the user gave to a factory."""

from collections.abc import Callable
from functools import partial
from inspect import isawaitable
from typing import Any

from selfcorrect_rag.errors import Fault, wrap_errors
from selfcorrect_rag.models.off_loop import in_thread
from selfcorrect_rag.nodes.node import Run


async def call_function(
    run: Run[Any], function: Callable[..., Any], kind: type[Fault], name: str, *args: Any
) -> Any:
    """Call a sync or async function; in async runs, a sync one in a thread.

    Raises:
        Fault: of ``kind``: it raised, or is async in a sync run.
    """
    with wrap_errors(kind, name):
        given: Any = await run.call(function, partial(in_thread, function), *args)
        if isawaitable(given) and run.is_async:
            return await run.call(function, lambda: given)
    if isawaitable(given):
        getattr(given, "close", lambda: None)()  # avoids the "never awaited" warning
        raise kind(f"{name} is async", "run the graph with ainvoke or astream")
    return given
