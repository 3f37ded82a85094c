"""Bulk runs on Ray Data: files are read by tasks, and asked by actors that make their own graph."""

import json
import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from selfcorrect_rag.bulk.answers import Answers, key
from selfcorrect_rag.bulk.finished import Finished
from selfcorrect_rag.bulk.graph_actor import JournalingActor
from selfcorrect_rag.bulk.graph_maker import GraphMaker
from selfcorrect_rag.bulk.question_files import QuestionFile
from selfcorrect_rag.bulk.questions import Columns, Line, read_questions
from selfcorrect_rag.bulk.ray_cluster import (
    quiet,
    ray_cluster,
    ray_errors,
    refuse_without_gpus,
)
from selfcorrect_rag.errors import SelfCorrectError

BLOCK_BYTES = 16 * 1024
"""About the size of the blocks that Ray Data moves: a block is asked by one actor, and what an
actor has finished is heard of block by block."""
READ_AT_ONCE = 64
"""Lines that a reading task gives at a time."""


class WorkerFailed(SelfCorrectError, RuntimeError):
    """A worker cannot make the graph, or cannot write; the message says why."""


class Cluster(NamedTuple):
    """What of Ray a run takes."""

    address: str | None = None
    """See :func:`~selfcorrect_rag.bulk.ray_cluster.ray_cluster`."""
    actors: int = 1
    """Each has a graph of its own."""
    gpus_per_actor: float = 0.0
    """GPUs, or a share of one."""


def ask_on_ray(
    files: Sequence[QuestionFile],
    columns: Columns,
    run: str,
    maker: GraphMaker,
    answers: Answers,
    cluster: Cluster,
    on_finished: Callable[[Finished], object],
    *,
    in_flight: int,
    batch_size: int,
) -> None:
    """Ask all rows of ``files`` that have no row in ``answers`` yet.

    Args:
        files, columns, run: see :func:`~selfcorrect_rag.bulk.questions.read_questions`.
        maker: of the graph that each actor makes.
        answers: the folder.
        cluster: which Ray, and which actors.
        on_finished: called with what was finished, batch by batch.
        in_flight: questions that an actor asks at a time.
        batch_size: questions that an actor is given at a time.

    Raises:
        NoCluster: see :func:`~selfcorrect_rag.bulk.ray_cluster.ray_cluster`, or there are too few
            GPUs.
        BadQuestions: a file cannot be read on the worker that reads.
        WorkerFailed: a worker cannot do its work.
    """
    token = f"{run}.run"
    (answers.out / "unfinished" / token).touch()
    cores = max(os.cpu_count() or 1, cluster.actors + 1)
    folder = answers.out.resolve()
    try:
        with (
            ray_cluster(cluster.address, cpus=cores) as ray,
            ray_errors(ray, folder, WorkerFailed),
        ):
            refuse_without_gpus(ray, cluster.gpus_per_actor, cluster.actors)
            done = ray.put(array("Q", sorted(answers.done)))
            asked = ray.data.from_items(list(map(_there, files)), override_num_blocks=1)
            quiet(asked).target_max_block_size = BLOCK_BYTES
            told = asked.map_batches(
                _read,
                batch_size=None,
                num_cpus=0,
                fn_kwargs={"columns": columns, "run": run, "done": done},
            ).map_batches(
                JournalingActor,
                batch_size=batch_size,
                compute=ray.data.ActorPoolStrategy(size=cluster.actors),
                num_cpus=1,
                num_gpus=cluster.gpus_per_actor,
                fn_constructor_args=[maker, str(folder), token, in_flight],
            )
            for row in told.iter_rows():
                if row["fatal"]:
                    raise WorkerFailed(f"on a worker: {row['fatal']}")
                finished = Finished(*json.loads(row["finished"]))
                answers.add(Path(row["journal"]), finished.rows)
                on_finished(finished)
    finally:
        (answers.out / "unfinished" / token).unlink(missing_ok=True)


def _there(file: QuestionFile) -> dict[str, str]:
    """A file for a worker, which may work in another folder."""
    return {"path": file.path if file.uri else os.path.abspath(file.path), "uri": file.uri}


def _read(batch: Any, columns: Columns, run: str, done: Any) -> Iterator[dict[str, list[str]]]:
    """The lines of all files that are not done, some at a time, as columns.

    One task reads all files, so that equal rows are asked once; answering takes longer than that.
    """
    import ray

    known: array[int] = ray.get(done)
    taken: set[int] = set()

    def take(id: str) -> bool:
        wanted = key(id)
        if wanted in taken or _has(known, wanted):
            return False
        taken.add(wanted)
        return True

    files = [
        QuestionFile(str(path), str(uri))
        for path, uri in zip(batch["path"], batch["uri"], strict=True)
    ]
    lines = read_questions(files, columns, run, take)
    while some := list(islice(lines, READ_AT_ONCE)):
        yield dict(zip(Line._fields, map(list, zip(*some, strict=True)), strict=True))


def _has(known: "array[int]", wanted: int) -> bool:
    place = bisect_left(known, wanted)
    return place < len(known) and known[place] == wanted
