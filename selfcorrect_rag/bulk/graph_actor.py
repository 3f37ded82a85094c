"""The graph as a class for Ray Data's ``map_batches``, which makes it on the worker."""

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from selfcorrect_rag.bulk.answers import journal_of
from selfcorrect_rag.bulk.asking import IN_FLIGHT, opened_asker
from selfcorrect_rag.bulk.finished import Finished
from selfcorrect_rag.bulk.graph_maker import GraphMaker
from selfcorrect_rag.bulk.questions import Line
from selfcorrect_rag.bulk.rows import ANSWER, BROKEN, arrow_schema, failed
from selfcorrect_rag.errors import BadRun, describe_error, require, wrap_disk_full
from selfcorrect_rag.old_journal import Journal


class GraphActor:
    """Asks a graph the questions of each batch, and adds the columns of answers to it.

    ``dataset.map_batches(GraphActor, fn_constructor_args=["my_module:make_graph"], concurrency=4)``

    Args:
        graph: a :class:`~selfcorrect_rag.bulk.graph_maker.GraphMaker`, or what its ``of`` takes: a
            ``module:function``, or a JSON file that all workers can read.
        question: the column of questions, texts.
        in_flight: questions that it asks at a time.

    Raises:
        NoGraph: the graph cannot be made here.
        SelfCorrectError: a model, an index or an option is wrong.
    """

    def __init__(
        self,
        graph: GraphMaker | str | Path,
        *,
        question: str = "question",
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self._question, self._opened = question, ExitStack()
        self._asker = self._opened.enter_context(opened_asker(GraphMaker.of(graph), in_flight))

    async def __call__(self, batch: Any) -> Any:
        """The batch, a ``pyarrow.Table`` or a dict of arrays, as a table with the columns
        :data:`~selfcorrect_rag.bulk.rows.ANSWER`; rows keep their order."""
        pa = require("pyarrow", "ray")
        if not isinstance(batch, pa.Table):
            batch = pa.table({name: list(values) for name, values in batch.items()})
        asked = map(self._answer, batch.column(self._question).to_pylist())
        rows = await asyncio.gather(*asked)
        answers = pa.Table.from_pylist(rows, schema=arrow_schema(ANSWER))
        for name in ANSWER:
            if name in batch.column_names:
                batch = batch.drop_columns([name])
            batch = batch.append_column(name, answers.column(name))
        return batch

    async def _answer(self, question: Any) -> dict[str, Any]:
        if not isinstance(question, str) or not question.strip():
            return failed(BROKEN, "the question is empty, or no text")
        return await self._asker.ask({"question": question})


class JournalingActor:
    """Asks the questions of batches of lines, and writes each row down as it is finished.

    What it gives for a batch is a row with the path of its journal and what was finished. Errors
    that end the run are its ``fatal``: Ray would raise them once for each batch, or try again.
    """

    def __init__(self, maker: GraphMaker, out: str, run: str, in_flight: int) -> None:
        self._out, self._opened, self._fatal = Path(out), ExitStack(), ""
        try:
            if not (self._out / "unfinished" / run).exists():
                raise BadRun(f"a worker does not see {out}: give a folder that all machines share")
            self._asker = self._opened.enter_context(opened_asker(maker, in_flight))
        except Exception as error:
            self._fatal = describe_error(error)

    async def __call__(self, batch: Any) -> dict[str, list[Any]]:
        """What became of a batch of columns of :class:`~selfcorrect_rag.bulk.questions.Line`."""
        found = zip(*(batch[name] for name in Line._fields), strict=True)
        lines = {str(line[0]): Line(*map(str, line)) for line in found}
        path = journal_of(self._out, list(lines))
        finished = Finished()
        if not self._fatal:
            try:
                with wrap_disk_full(self._out):
                    finished = await self._finish(lines, path)
            except Exception as error:
                self._fatal = describe_error(error)
        told = json.dumps(finished)
        return {"journal": [str(path)], "finished": [told], "fatal": [self._fatal]}

    async def _finish(self, lines: dict[str, Line], path: Path) -> Finished:
        """Ask what a killed actor left; all of the batch is finished then."""
        journal = Journal(path)
        left = [line for name, line in lines.items() if name not in journal.rows]
        async for row in self._asker.rows(left):
            journal.append(row.pop("id"), row)
        return Finished.of(journal.rows.values())
