"""Many questions through a graph, into a folder of answers that a killed run goes on with."""

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path
from typing import Any

from selfcorrect_rag.bulk.answers import Answers, Format, Summary, opened_answers
from selfcorrect_rag.bulk.asking import IN_FLIGHT, opened_asker
from selfcorrect_rag.bulk.finished import Finished
from selfcorrect_rag.bulk.graph_maker import GraphMaker
from selfcorrect_rag.bulk.local import ask_here
from selfcorrect_rag.bulk.on_ray import Cluster, ask_on_ray
from selfcorrect_rag.bulk.question_files import find_files
from selfcorrect_rag.bulk.questions import Columns, check_columns, read_questions
from selfcorrect_rag.errors import require
from selfcorrect_rag.evaluation.run import FirstErrors
from selfcorrect_rag.old_journal import write_rows

BATCH_SIZE = 64
"""Questions that share a journal and, on Ray, an actor."""
LEAST_FAILURES = 32
"""Questions that must all fail alike, before any is answered, until a run gives up."""


def batch_questions(
    questions: str | Path | Iterable[str | Path],
    graph: GraphMaker | str | Path,
    out: str | Path,
    *,
    columns: Columns = Columns(),  # noqa: B008 - immutable
    form: Format = "jsonl",
    retry_failed: bool = False,
    in_flight: int = IN_FLIGHT,
    batch_size: int = BATCH_SIZE,
    cluster: Cluster | None = None,
    on_finished: Callable[[Finished], object] = lambda finished: None,
) -> Summary:
    """Ask a graph every question that has no row in the folder ``out`` yet.

    Rows of the same content are one row. A question that fails is a row with its error.

    Args:
        questions: files, folders, globs and URIs of JSONL, CSV or Parquet.
        graph: see :meth:`~selfcorrect_rag.bulk.graph_maker.GraphMaker.of`.
        out: a folder; on Ray, one that all machines share.
        columns: what is read of the rows.
        form: of the parts, ``jsonl`` or ``parquet``.
        retry_failed: ask again what failed before.
        in_flight: questions at a time, of this process or of each actor.
        batch_size: questions of a batch, the unit that Ray hands to actors.
        cluster: None: in this process; else on Ray.
        on_finished: called with what was finished since the last call.

    Raises:
        BadQuestions: there are none, no row has the column, or a file cannot be read.
        BadRun: ``out`` is not this run's, or another run works in it.
        NoGraph, NoCluster, WorkerFailed: before or at the first question.
        AllFailed: the first questions all failed with one error.
        DiskFull: the disk is; what is written stays.
    """
    places = [questions] if isinstance(questions, str | Path) else list(questions)
    maker, folder = GraphMaker.of(graph), Path(out)
    if form == "parquet":
        require("pyarrow.parquet", "parquet")
    files = find_files(map(str, places))
    check_columns(files, columns)
    identity = {**maker.as_json(), "columns": list(map(_plain, columns)), "format": form}
    run = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
    started = time.monotonic()
    failures = FirstErrors(
        in_flight * (cluster.actors if cluster else 1),
        least=LEAST_FAILURES,
        remedy="when that is mended, --retry-failed asks them again",
    )

    def count(finished: Finished) -> None:
        on_finished(finished)
        for error in finished.errors:
            failures.add("questions", error)

    with opened_answers(folder, form, identity, drop_failed=retry_failed) as answers:
        try:
            if cluster is None:
                lines = read_questions(files, columns, run, answers.take)
                if (first := next(lines, None)) is None:
                    return _end(answers, started)  # no model is loaded for nothing
                with opened_asker(maker, in_flight) as asker:
                    ask_here(
                        chain([first], lines),
                        asker,
                        answers,
                        count,
                        in_flight=in_flight,
                        batch_size=batch_size,
                    )
            else:
                ask_on_ray(
                    files,
                    columns,
                    run,
                    maker,
                    answers,
                    cluster,
                    count,
                    in_flight=in_flight,
                    batch_size=batch_size,
                )
        except BaseException:
            _end(answers, started)
            raise
        return _end(answers, started)


def _end(answers: Answers, started: float) -> Summary:
    answers.gather_all()
    summary = answers.summary(time.monotonic() - started)
    write_rows(answers.out / "summary.json", [summary._asdict()])
    return summary


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
