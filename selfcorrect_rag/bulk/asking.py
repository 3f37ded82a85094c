"""Asks a graph questions, many at a time; a failure is a row with its error."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.bulk.graph_maker import GraphMaker
from selfcorrect_rag.bulk.questions import Line
from selfcorrect_rag.bulk.rows import BROKEN, answered, failed
from selfcorrect_rag.errors import describe_error
from selfcorrect_rag.nodes.node import CallCounter

IN_FLIGHT = 16
"""Questions that one process asks at a time, unless told."""


class Asker:
    """A graph, and how many questions it is asked at a time.

    Args:
        graph: one of ours, or any that takes a ``question`` or ``messages``.
        in_flight: most questions at a time, 1 or more; models gather what is asked meanwhile.
        counts: whether the graph counts its own costs, as all of ours do.
    """

    def __init__(
        self, graph: Runnable[Any, Any], in_flight: int = IN_FLIGHT, *, counts: bool = True
    ) -> None:
        self._graph, self._counts = graph, counts
        self._room = asyncio.Semaphore(in_flight)

    async def ask(self, given: dict[str, Any]) -> dict[str, Any]:
        """The columns :data:`~selfcorrect_rag.bulk.rows.ANSWER` for a graph's input."""
        async with self._room:
            counter, started = CallCounter(), time.perf_counter()
            callbacks = [] if self._counts else [counter]
            try:
                config = RunnableConfig(callbacks=[*callbacks])
                result = await self._graph.ainvoke(given, config)
                seconds = time.perf_counter() - started
                return answered(result, seconds, counter.usage(seconds))
            except Exception as error:  # whatever it is, the other questions go on
                seconds = time.perf_counter() - started
                cost = counter.usage(seconds)
                kind, _, message = describe_error(error).partition(": ")
                return failed(kind, message, seconds, cost)

    async def row(self, line: Line) -> dict[str, Any]:
        """A whole row of the output."""
        given = json.loads(line.asked) if line.asked else {}
        question = given.get("question") or ""
        if "messages" in given:
            question = given["messages"][-1]["content"]
        answer = await self.ask(given) if given else failed(BROKEN, line.error)
        return {"id": line.id, "question": question, **answer, "kept": line.kept}

    async def rows(self, lines: Iterable[Line]) -> AsyncIterator[dict[str, Any]]:
        """The rows of ``lines`` in the order in which they end."""
        tasks = [asyncio.ensure_future(self.row(line)) for line in lines]
        try:
            for done in asyncio.as_completed(tasks):
                yield await done
        finally:
            for task in tasks:
                task.cancel()


@contextmanager
def opened_asker(maker: GraphMaker, in_flight: int) -> Iterator[Asker]:
    """Who asks the graph that ``maker`` makes here, and ends with it; see its ``opened``."""
    with maker.opened() as graph:
        yield Asker(graph, in_flight, counts=not maker.factory)
