"""Tells errors of a checkpointer or store from those of a node."""

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from types import TracebackType
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph
from langgraph.store.base import BaseStore
from langgraph.typing import ContextT, InputT, OutputT, StateT

from selfcorrect_rag.errors import SelfCorrectError, StoreFailed, describe_error

KEPT = "what it has saved is kept: once it works, go on from the thread with invoke(None, config)"
BROKEN = "restore its file from a copy, or begin another"
_SIGNS = ("malformed", "not a database")
"""SQLite's messages about a file that it cannot read."""


@contextmanager
def stores_named() -> Iterator[None]:
    """Raise errors of a checkpointer or a store as :class:`StoreFailed`.

    Such errors have no common class, so they are recognised by their traceback.
    """
    try:
        yield
    except (GraphBubbleUp, SelfCorrectError):
        raise
    except Exception as error:
        store = _store_in(error.__traceback__)
        if store is None:
            raise
        remedy = BROKEN if any(sign in str(error) for sign in _SIGNS) else KEPT
        raise StoreFailed(
            f"the thread store ({type(store).__name__}) raised {describe_error(error)}", remedy
        ) from error


def _store_in(traceback: TracebackType | None) -> object:
    """The store in whose method the error occurred, if any."""
    while traceback is not None:
        owner = traceback.tb_frame.f_locals.get("self")
        if isinstance(owner, BaseCheckpointSaver | BaseStore):
            return owner
        traceback = traceback.tb_next
    return None


class StoresNamed(CompiledStateGraph[StateT, ContextT, InputT, OutputT]):
    """A graph that raises its store's errors as :class:`StoreFailed`.

    ``invoke`` calls ``stream``, and ``update_state`` calls ``bulk_update_state``.
    """

    def stream(self, *args: Any, **options: Any) -> Iterator[Any]:
        parts = super().stream(*args, **options)

        def read() -> Iterator[Any]:
            with stores_named():
                yield from parts

        return read()

    def astream(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        parts: Any = super().astream(*args, **options)

        async def read() -> AsyncIterator[Any]:
            with stores_named():
                async with aclosing(parts):
                    async for part in parts:
                        yield part

        return read()

    def get_state(self, *args: Any, **options: Any) -> Any:
        with stores_named():
            return super().get_state(*args, **options)

    async def aget_state(self, *args: Any, **options: Any) -> Any:
        with stores_named():
            return await super().aget_state(*args, **options)

    def get_state_history(self, *args: Any, **options: Any) -> Iterator[Any]:
        with stores_named():
            yield from super().get_state_history(*args, **options)

    async def aget_state_history(self, *args: Any, **options: Any) -> AsyncIterator[Any]:
        with stores_named():
            async for state in super().aget_state_history(*args, **options):
                yield state

    def bulk_update_state(self, *args: Any, **options: Any) -> Any:
        with stores_named():
            return super().bulk_update_state(*args, **options)

    async def abulk_update_state(self, *args: Any, **options: Any) -> Any:
        with stores_named():
            return await super().abulk_update_state(*args, **options)
