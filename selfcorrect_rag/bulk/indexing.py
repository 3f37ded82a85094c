"""Files into a vector store on many machines: tasks read and cut, actors embed and write.

This process lists the files, and alone keeps the records of `index_paths`: what is being written
is recorded before, what is written after. So a kill, of an actor, a machine or this process, loses
only what was under way, and the next run writes that again.
"""

import sqlite3
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selfcorrect_rag.bulk.cut_files import READ, UNCHANGED, CutRow, cut_files
from selfcorrect_rag.bulk.ray_cluster import ray_cluster, ray_errors, refuse_without_gpus
from selfcorrect_rag.bulk.store_writer import StoreWriter
from selfcorrect_rag.errors import StoreFailed
from selfcorrect_rag.search import IndexProgress, IndexReport, Problem
from selfcorrect_rag.search.chunking import CHUNK_OVERLAP, CHUNK_WORDS, chunk
from selfcorrect_rag.search.files import FoundFile, find_files
from selfcorrect_rag.search.index import BATCH_SIZE, index_errors
from selfcorrect_rag.search.indexing import FileRecords, IndexingRun
from selfcorrect_rag.search.loading import MAX_BYTES
from selfcorrect_rag.search.open_index import refuse_other_index
from selfcorrect_rag.search.store import StoreList

BATCHES_AN_ACTOR = 2
"""Batches with an actor at a time: one that it writes, and the next."""
TRIES = 4
"""How often a batch is given to an actor that dies of it."""
_LAST_WORDS = 60.0
"""Seconds that actors have, after a failure, to end what they write."""


def index_on_ray(
    paths: Iterable[str | Path],
    store: str,
    folder: str | Path,
    *,
    address: str | None = None,
    actors: int = 1,
    gpus_per_actor: float = 0,
    chunk_words: int = CHUNK_WORDS,
    chunk_overlap: int = CHUNK_OVERLAP,
    batch_size: int = BATCH_SIZE,
    max_bytes: int = MAX_BYTES,
    prune: bool = False,
    follow_links: bool = False,
    on_progress: Callable[[IndexProgress], None] = lambda progress: None,
) -> IndexReport:
    """Put files into a vector store as `index_paths` does, with Ray, and end in the same store.

    Every machine of the cluster needs the files under the same paths, this package and the store's
    module.

    Args:
        store: ``module:attribute`` of a LangChain vector store on a server; each actor makes its
            own.
        folder: Where the list of what is in the store is or will be; `StoreIndex` reads it too.
        address: see `ray_cluster`.
        actors: How many embed and write.
        gpus_per_actor: GPUs that each has to itself; a fraction shares one.
        batch_size: Passages embedded and written at once.

    The others are those of `index_paths`.

    Raises:
        NoCluster, MissingExtra: see `ray_cluster`.
        NoIndex: ``folder`` holds an index of another kind.
        BadName, NotShared: ``store`` is no vector store on the workers, or one for one process.
        StoreFailed: the store or its embeddings raised, or an actor died again and again.
        EmbedderMismatch, UnreadableIndex, IndexBusy, DiskFull, ReadOnlyIndex: see `StoreList`.
        ValueError: not 0 <= chunk_overlap < chunk_words.
    """
    next(chunk("", chunk_words, chunk_overlap), None)  # bad sizes fail before anything starts
    paths, folder = list(paths), Path(folder)
    refuse_other_index(folder)
    with (
        ray_cluster(address) as ray,
        ray_errors(ray, folder, lambda reason: StoreFailed(reason, "mend that and run again")),
        _writers(ray, store, actors, gpus_per_actor) as writers,
    ):
        listed = StoreList(folder, writers.first("store_name"))
        listed.refuse_emptied(lambda: bool(writers.first("holds_passages")))
        with (
            index_errors(folder, sqlite3.Error),
            closing(FileRecords(folder)) as records,
            writers.ended(),
        ):
            records.reopen(listed.begun())
            found = list(find_files(paths, follow_links=follow_links))
            files = [file for file in found if isinstance(file, FoundFile)]
            run = _BulkRun(listed, writers, records, found, on_progress)
            for rows in cut_files(
                files,
                [records.finished(file.name) for file in files],
                words=chunk_words,
                overlap=chunk_overlap,
                max_bytes=max_bytes,
                batch_size=batch_size,
            ):
                run.take(rows)
            run.end()
            return run.report(paths, {file.name for file in files}, listed, prune=prune)


class _Writers:
    """Actors that share the writing."""

    def __init__(self, ray: Any, actors: Sequence[Any]) -> None:
        self._ray = ray
        self._busy = Counter(dict.fromkeys(range(len(actors)), 0))
        self._actors = actors
        self._writing: dict[Any, tuple[int, Callable[[], None]]] = {}

    @property
    def full(self) -> bool:
        """Whether every actor has its `BATCHES_AN_ACTOR`."""
        return len(self._writing) >= BATCHES_AN_ACTOR * len(self._actors)

    @property
    def idle(self) -> bool:
        """Whether nothing is being written."""
        return not self._writing

    def first(self, method: str, *given: Any) -> Any:
        """What the first actor answers."""
        return self._ray.get(getattr(self._actors[0], method).remote(*given))

    def write(
        self,
        passages: dict[str, tuple[str, str]],
        earlier: Sequence[str],
        when_written: Callable[[], None],
    ) -> None:
        """Give a batch to the actor with the least to do."""
        number, _ = self._busy.most_common()[-1]
        call = self._actors[number].write.remote(passages, earlier)
        self._busy[number] += 1
        self._writing[call] = number, when_written

    def wait(self) -> None:
        """Wait until a batch is written, and say so."""
        (call,), _ = self._ray.wait(list(self._writing))
        number, when_written = self._writing.pop(call)
        self._busy[number] -= 1
        self._ray.get(call)
        when_written()

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Let what is being written end, also at an error: the next run may write the same."""
        try:
            yield
        finally:
            if calls := list(self._writing):
                self._ray.wait(calls, num_returns=len(calls), timeout=_LAST_WORDS)


@contextmanager
def _writers(ray: Any, store: str, actors: int, gpus: float) -> Iterator[_Writers]:
    refuse_without_gpus(ray, gpus, actors)
    # One core is left to the reading, for which the actors would wait for ever.
    spare = ray.cluster_resources().get("CPU", 0) - 1
    made = ray.remote(StoreWriter).options(
        num_cpus=max(0.0, min(1.0, spare / actors)),
        num_gpus=gpus,
        max_restarts=-1,
        max_task_retries=TRIES - 1,
        scheduling_strategy="SPREAD",
    )
    running = [made.remote(store, str(Path.cwd())) for _ in range(actors)]
    try:
        yield _Writers(ray, running)
    finally:
        for actor in running:
            ray.kill(actor)


@dataclass
class _File:
    """A file that is being indexed."""

    name: str
    size: int
    fingerprint: str = ""
    fault: str | None = None
    writing: int = 0
    """Batches under way with passages of it."""


class _BulkRun(IndexingRun):
    """One run on Ray, with the files under way."""

    def __init__(
        self,
        listed: StoreList,
        writers: _Writers,
        records: FileRecords,
        found: Sequence[FoundFile | Problem],
        on_progress: Callable[[IndexProgress], None],
    ) -> None:
        super().__init__(records, found, on_progress)
        self.listed = listed
        self.writers = writers
        self._read: deque[_File] = deque()  # all their passages have come
        self._files = [_File(f.name, f.size()) for f in found if isinstance(f, FoundFile)]
        self._ids: set[str] = set()  # of the batches under way

    def take(self, rows: Sequence[CutRow]) -> None:
        """Give a batch to an actor; wait while all have enough."""
        passages = [row for row in rows if not row["ended"]]
        batch = {row["id"]: row for row in passages}
        # The later of two batches with the same passage decides: it must not overtake.
        while self.writers.full or not self._ids.isdisjoint(batch):
            self.writers.wait()
        # Recorded first: a run killed in between leaves nothing in the store that no file owns.
        self.records.record(
            (self._files[row["file"]].name, row["id"], row["fingerprint"]) for row in passages
        )
        metadata = {id_: row["metadata"] for id_, row in batch.items()}
        lacking = self.listed.begin(metadata)
        shares = defaultdict[int, float](float)  # by file
        for row in passages:
            shares[row["file"]] += row["share"]
        for number in shares:
            self._files[number].writing += 1
        for row in rows:
            if row["ended"]:
                self._ended(row)

        def written() -> None:
            self._ids.difference_update(batch)
            self.listed.end({id_: metadata[id_] for id_ in lacking.ids})
            self.added += lacking.new
            self.passages += len(passages)
            for number, share in shares.items():
                file = self._files[number]
                file.writing -= 1
                self._advance(share * file.size, file.name)
            self._finish()

        if lacking.ids:
            self._ids.update(batch)
            texts = {id_: (batch[id_]["text"], metadata[id_]) for id_ in lacking.ids}
            self.writers.write(texts, lacking.earlier, written)
        else:
            written()
        self._finish()

    def end(self) -> None:
        """Wait until all is written."""
        while not self.writers.idle:
            self.writers.wait()

    def _ended(self, row: CutRow) -> None:
        file = self._files[row["file"]]
        if row["ended"] == READ:
            file.fingerprint, file.fault = row["fingerprint"], row["reason"] or None
            self.files += 1
            self._read.append(file)
            self._fault(file.name, file.fault)
            return
        if row["ended"] == UNCHANGED:
            self.unchanged += 1
            self._fault(file.name, self.records.fault(file.name))
        else:
            self.problems.append(Problem(file.name, row["reason"]))
        self._advance(file.size, file.name)

    def _finish(self) -> None:
        """Record files of which all passages are written.

        In their order: were a later one finished at a kill, the next run would let an earlier one
        decide on a passage of both.
        """
        stale: list[str] = []
        # One transaction for many files: each costs a wait for the disk.
        with self.records.transaction():
            while self._read and not self._read[0].writing:
                file = self._read.popleft()
                stale += self.records.stale(file.name, file.fingerprint)
                self.records.finish(file.name, file.fingerprint, file.fault)
            self._delete(stale)

    def _delete(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), BATCH_SIZE):
            part = ids[start : start + BATCH_SIZE]
            self.writers.first("delete", part)
            self.listed.remove(part)
        self.removed += len(ids)
