"""Bulk runs in this process, by asyncio: no Ray, no pandas."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice

from selfcorrect_rag.bulk.answers import Answers, journal_of
from selfcorrect_rag.bulk.asking import Asker
from selfcorrect_rag.bulk.finished import Finished
from selfcorrect_rag.bulk.questions import Line
from selfcorrect_rag.evaluation.run import together
from selfcorrect_rag.old_journal import Journal


def ask_here(
    lines: Iterator[Line],
    asker: Asker,
    answers: Answers,
    on_finished: Callable[[Finished], object],
    *,
    in_flight: int,
    batch_size: int,
) -> None:
    """Ask all of ``lines``, ``in_flight`` at a time, in one event loop.

    Args:
        lines: read as they are needed.
        asker: the graph.
        answers: the folder.
        on_finished: called with what was finished, row by row.
        in_flight: questions at a time.
        batch_size: rows of a journal.
    """
    asyncio.run(_Asking(lines, asker, answers, on_finished, batch_size).run(in_flight))


class _Batch:
    """Lines, their journal, and how many of them are not finished."""

    def __init__(self, lines: dict[str, Line], answers: Answers) -> None:
        self.lines, self.left = list(lines.values()), len(lines)
        self.path = journal_of(answers.out, list(lines))
        self.journal = Journal(self.path)


class _Asking:
    def __init__(
        self,
        lines: Iterator[Line],
        asker: Asker,
        answers: Answers,
        on_finished: Callable[[Finished], object],
        batch_size: int,
    ) -> None:
        self._lines, self._asker, self._answers = lines, asker, answers
        self._on_finished, self._batch_size = on_finished, batch_size
        self._next = self._batches()
        self._turn = asyncio.Lock()

    async def run(self, in_flight: int) -> None:
        """Run as many workers; an exception of one ends them all."""
        await together(self._work, in_flight)

    async def _batches(self) -> AsyncIterator[tuple[_Batch, Line]]:
        while chunk := await asyncio.to_thread(lambda: list(islice(self._lines, self._batch_size))):
            batch = _Batch({line.id: line for line in chunk}, self._answers)
            for line in batch.lines:
                yield batch, line

    async def _take(self) -> tuple[_Batch, Line] | None:
        async with self._turn:
            return await anext(self._next, None)

    async def _work(self) -> None:
        while taken := await self._take():
            batch, line = taken
            row = await self._asker.row(line)
            batch.journal.append(row.pop("id"), row)
            self._on_finished(Finished.of([row]))
            batch.left -= 1
            if not batch.left:
                await asyncio.to_thread(self._answers.add, batch.path, len(batch.lines))
