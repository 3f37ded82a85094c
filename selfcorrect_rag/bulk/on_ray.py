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
from selfcorrect_rag.bulk.questions import Columns, Line, read_questions
from selfcorrect_rag.bulk.ray_cluster import ray_cluster
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
    batch_size: int = 64
    """Questions of a batch."""
    in_flight: int = 16
    """Questions that an actor asks at a time."""


def ask_on_ray(
    files: Sequence[str],
    columns: Columns,
    run: str,
    maker: GraphMaker,
    answers: Answers,
    cluster: Cluster,
    on_finished: Callable[[Finished], object],
) -> None:
    """Ask all rows of ``files`` that have no row in ``answers`` yet.

    Raises:
        NoCluster: see :func:`~selfcorrect_rag.bulk.ray_cluster.ray_cluster`.
        WorkerFailed: a worker cannot do its work.
    """
    token = f"{run}.run"
    (answers.out / "unfinished" / token).touch()
    cores = max(os.cpu_count() or 1, cluster.actors + 1)
    with ray_cluster(cluster.address, cpus=cores) as ray:
        here = ray.cluster_resources().get("GPU", 0)
        if cluster.address is None and here < cluster.gpus_per_actor:
            raise WorkerFailed(
                f"an actor takes {cluster.gpus_per_actor:g} GPUs; there are {here:g}"
            )
        context = ray.data.DataContext.get_current()
        before, context.target_max_block_size = context.target_max_block_size, BLOCK_BYTES
        try:
            done = ray.put(array("Q", sorted(answers.done)))
            told = (
                ray.data.from_items([{"file": file} for file in files])
                .map_batches(
                    _read,
                    batch_size=1,
                    num_cpus=0,
                    fn_kwargs={"columns": columns, "run": run, "done": done},
                )
                .map_batches(
                    JournalingActor,
                    batch_size=cluster.batch_size,
                    compute=ray.data.ActorPoolStrategy(size=cluster.actors),
                    num_cpus=1,
                    num_gpus=cluster.gpus_per_actor,
                    fn_constructor_args=[
                        maker,
                        str(answers.out.resolve()),
                        token,
                        cluster.in_flight,
                    ],
                )
            )
            for row in told.iter_rows():
                if row["fatal"]:
                    raise WorkerFailed(f"on a worker: {row['fatal']}")
                *numbers, errors = json.loads(row["finished"])
                finished = Finished(*numbers, tuple(errors))
                answers.add(Path(row["journal"]), finished.rows)
                on_finished(finished)
        finally:
            (answers.out / "unfinished" / token).unlink(missing_ok=True)
            context.target_max_block_size = before


def _read(batch: Any, columns: Columns, run: str, done: Any) -> Iterator[dict[str, list[str]]]:
    """The lines of a file that are not done, some at a time, as columns."""
    import ray

    known = ray.get(done)
    for file in batch["file"]:
        lines = (
            line
            for line in read_questions(str(file), columns, run)
            if not _has(known, key(line.id))
        )
        while some := list(islice(lines, READ_AT_ONCE)):
            yield dict(zip(Line._fields, map(list, zip(*some, strict=True)), strict=True))


def _has(known: "array[int]", wanted: int) -> bool:
    place = bisect_left(known, wanted)
    return place < len(known) and known[place] == wanted
