"""Asks a graph many questions into a folder; a killed run is resumed by the same call.

OUT/answers.jsonl or answers.parquet   all rows, in the order of the questions
OUT/journals/*.jsonl                   each row at once when it is finished
OUT/settings.json, summary.json, lock
"""

import asyncio
import json
import os
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.batch.questions import Columns, Question, find_files, read_questions
from selfcorrect_rag.batch.rows import BROKEN, COLUMNS, answered, arrow_schema, failed
from selfcorrect_rag.errors import (
    BadRun,
    NoCluster,
    SelfCorrectError,
    describe_error,
    find_named,
    require,
)
from selfcorrect_rag.evaluation.runner import AllFailed
from selfcorrect_rag.journal import Journal, digest, open_run, replace_file, write_rows
from selfcorrect_rag.nodes.node import CallCounter
from selfcorrect_rag.serving.config import BadOption, ServingConfig
from selfcorrect_rag.serving.parts import Parts

FAILURES = 32
"""First questions that must all fail alike until a run gives up, or as many as are in flight."""
_PATHS = ("index", "model", "evaluator", "web", "tokenizer", "demonstrations")
_MACHINE = ("base_url", "engine_options")
"""Fields that say where a model runs, which may change when a run resumes."""
_COSTS = ("model_calls", "prompt_tokens", "generated_tokens")
READ_AT_ONCE = 10_000
"""Questions that Ray Data is given at a time."""
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DATA_LOG_LEVEL": "CRITICAL",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
}
"""Read by Ray when it is imported; a user's own values stand."""


class NoGraph(SelfCorrectError, RuntimeError):
    """A graph cannot be made; the message says of what and why."""


class GraphSource(NamedTuple):
    """The parts of a graph, as JSON values: each process makes its own."""

    graph: str = "self_rag"
    """A key of ``GRAPHS``."""
    config: Mapping[str, Any] = {}
    """Fields of a :class:`~selfcorrect_rag.serving.config.ServingConfig`, and settings."""
    factory: str = ""
    """MODULE:FUNCTION that makes a compiled graph, instead of the others."""

    def resolved(self) -> "GraphSource":
        """The same with paths that are good in any folder.

        Raises:
            BadOption: the configuration is invalid, or waits for a person's approval.
        """
        if self.factory:
            return self
        config = ServingConfig(**self.config)
        if config.settings_of(self.graph).get("approve_search"):
            raise BadOption("approve_search waits for a person; a batch has none")
        given = config.model_dump(mode="json", exclude_defaults=True)
        for name in _PATHS:
            if given.get(name) and Path(given[name]).exists():
                given[name] = str(Path(given[name]).resolve())
        return GraphSource(self.graph, given)

    @contextmanager
    def opened(self) -> Iterator[Runnable[Any, Any]]:
        """The graph, with its models and indexes open."""
        if self.factory:
            try:
                graph = find_named(self.factory, Runnable)
            except Exception as error:  # any code runs in a module that is imported
                raise NoGraph(f"{self.factory} makes no graph ({describe_error(error)})") from error
            if not isinstance(graph, Runnable):
                raise NoGraph(f"{self.factory} must make a graph, got {type(graph).__name__}")
            yield graph
            return
        with Parts(ServingConfig(**self.config)) as parts:
            yield parts.graph(self.graph)


class Cluster(NamedTuple):
    """A Ray cluster, and what a run takes of it."""

    address: str | None = None
    """HOST:PORT of its head, or ``auto``; None: RAY_ADDRESS, else Ray is started here."""
    actors: int = 1
    """Processes that answer, each with a graph of its own."""
    gpus_per_actor: float = 0.0


class Summary(NamedTuple):
    """The counts of a folder of answers."""

    rows: int = 0
    failed: int = 0
    asked: int = 0
    """Rows that this run has finished."""
    model_calls: int | None = None
    prompt_tokens: int | None = None
    """Tokens of the models that report them; None if none does."""
    generated_tokens: int | None = None
    seconds: float = 0.0


Progress = Callable[[Mapping[str, Any]], object]
"""Called with each row that is finished."""


def batch_questions(
    questions: str | Path | Iterable[str | Path],
    graph: GraphSource | str,
    out: str | Path,
    *,
    columns: Columns = Columns(),  # noqa: B008 - immutable
    form: str = "jsonl",
    retry_failed: bool = False,
    in_flight: int = 16,
    batch_size: int = 64,
    cluster: Cluster | None = None,
    progress: Progress = lambda row: None,
) -> Summary:
    """Ask a graph every question that has no row in the folder ``out`` yet.

    Equal questions with equal kept columns are one row. A failed question is a row with its error.

    Args:
        questions: files, folders and globs of JSONL, CSV or Parquet.
        graph: what to make it of, or MODULE:FUNCTION.
        out: a folder; on Ray one that all machines share.
        columns: the columns that are read.
        form: of the answers, ``jsonl`` or ``parquet``.
        retry_failed: ask again what has failed.
        in_flight: questions at a time, of this process or of each actor.
        batch_size: questions that are handed to an actor at a time.
        cluster: where actors run; None asks in this process.
        progress: see :data:`Progress`.

    Raises:
        BadQuestions: there are none, no row has a column, or a file cannot be read.
        BadRun: ``out`` holds something else or other settings, or another run works in it.
        NoGraph, NoCluster: before the first question.
        AllFailed: the first questions all failed with one error.
    """
    started, folder = time.monotonic(), Path(out)
    places = [questions] if isinstance(questions, str | Path) else list(questions)
    files = find_files(places)
    source = (GraphSource(factory=graph) if isinstance(graph, str) else graph).resolved()
    config = {name: value for name, value in source.config.items() if name not in _MACHINE}
    settings = {"graph": [source.graph, config, source.factory], "columns": columns, "form": form}
    if form == "parquet":
        arrow_schema()  # before anything is asked
    with open_run(folder, settings):
        (folder / "journals").mkdir(exist_ok=True)
        index = _index(folder)
        done = {key for key, row in index.items() if not (row.is_failed and retry_failed)}
        first: list[str] = []
        asked = 0

        def show(row: Mapping[str, Any]) -> None:
            nonlocal asked
            asked += 1
            progress(row)
            most = max(FAILURES, in_flight)
            if row["error_type"] != BROKEN and len(first) < most:
                first.append(f"{row['error_type']}: {row['error']}" if row["error"] else "")
                if len(first) == most and first[0] and len(set(first)) == 1:
                    raise AllFailed(f"the first {most} questions all failed: {first[0]}")

        try:
            left = read_questions(files, columns, digest([json.dumps(settings)]), done)
            if cluster is not None:
                _ask_on_ray(left, source, folder, cluster, in_flight, batch_size, show)
            elif question := next(left, None):  # or no model is loaded for nothing
                journal = Journal(folder / "journals" / f"{uuid.uuid4().hex}.jsonl")
                asyncio.run(_ask_here(chain([question], left), source, journal, in_flight, show))
        finally:
            summary = _write(folder, form, asked, time.monotonic() - started)
    return summary


async def _ask_here(
    questions: Iterator[Question],
    source: GraphSource,
    journal: Journal,
    in_flight: int,
    show: Progress,
) -> None:
    """Ask ``in_flight`` questions at a time, and journal each row when it is finished."""
    with source.opened() as graph:

        async def work() -> None:
            for question in questions:
                row = await _ask(graph, question)
                journal.append(question.key, row)
                journal.rows.clear()  # which may be millions
                show(row)

        workers = [asyncio.create_task(work()) for _ in range(in_flight)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)


async def _ask(graph: Runnable[Any, Any], question: Question) -> dict[str, Any]:
    """A row of the output, with the question's ``place``."""
    given, counter, started = json.loads(question.asked or "{}"), CallCounter(), time.monotonic()
    text = given.get("question") or (given["messages"][-1]["content"] if given else "")
    try:
        if question.error:
            row = failed(question.error)
        else:
            result = await graph.ainvoke(given, RunnableConfig(callbacks=[counter]))
            seconds = time.monotonic() - started
            row = answered(result, seconds, counter.usage(seconds))
    except Exception as error:  # whatever it is, the other questions are asked
        row = failed(error, time.monotonic() - started, counter.model_calls)
    return {**row, "question": text, "kept": question.kept, "place": question.place}


class _Actor:
    """Answers batches of questions on a worker; a batch has one journal, whoever resumes it."""

    def __init__(self, source: GraphSource, folder: str, run: str, in_flight: int) -> None:
        self._journals, self._run, self._fatal = Path(folder) / "journals", run, ""
        self._room = asyncio.Semaphore(in_flight)
        try:
            if not self._journals.is_dir():
                raise BadRun(f"a worker does not see {folder}; all machines must share it")
            self._graph = ExitStack().enter_context(source.opened())
        except Exception as error:  # Ray would try again for ever
            self._fatal = describe_error(error)

    async def __call__(self, batch: Any) -> dict[str, list[str]]:
        if self._fatal:
            return {"row": [json.dumps({"fatal": self._fatal})]}
        found = zip(*(batch[name] for name in Question._fields), strict=True)
        questions = [Question(*map(str, values)) for values in found]
        journal = Journal(
            self._journals / f"{digest([self._run, *(q.key for q in questions)])}.jsonl"
        )

        async def answer(question: Question) -> None:
            async with self._room:
                if question.key not in journal.rows:
                    journal.append(question.key, await _ask(self._graph, question))

        await asyncio.gather(*map(answer, questions))
        return {"row": [json.dumps(journal.rows[question.key]) for question in questions]}


def _ask_on_ray(
    questions: Iterator[Question],
    source: GraphSource,
    folder: Path,
    cluster: Cluster,
    in_flight: int,
    batch_size: int,
    show: Progress,
) -> None:
    """Let Ray Data hand batches to actors, which journal their rows in ``folder``."""
    run = uuid.uuid4().hex
    with open_ray(cluster) as ray:
        for start in iter(lambda: list(islice(questions, READ_AT_ONCE)), []):
            rows = [question._asdict() for question in start]
            blocks = -(-len(rows) // batch_size)  # one actor answers a block
            data = ray.data.from_items(rows, override_num_blocks=blocks)
            data.context.enable_progress_bars = False
            answers = data.map_batches(
                _Actor,
                batch_size=batch_size,
                compute=ray.data.ActorPoolStrategy(size=cluster.actors),
                num_cpus=1,
                num_gpus=cluster.gpus_per_actor,
                fn_constructor_args=[source, str(folder.resolve()), run, in_flight],
            )
            for answer in answers.iter_rows():
                row = json.loads(answer["row"])
                if "fatal" in row:
                    raise NoGraph(f"on a worker: {row['fatal']}")
                show(row)


@contextmanager
def open_ray(cluster: Cluster) -> Iterator[Any]:
    """The module ``ray``, connected; a Ray that is started here ends with the block.

    Raises:
        MissingExtra: Ray is not installed.
        NoCluster: nothing answers at the address, or there are too few GPUs.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    ray = require("ray", "ray")
    require("ray.data", "ray")
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"num_cpus": max(os.cpu_count() or 1, cluster.actors + 1)}
    if address != "local":
        options = {"runtime_env": {"env_vars": {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}}}
    is_ours = not ray.is_initialized()
    try:
        if is_ours and ":" in address:  # where Ray itself would wait for minutes
            host, _, port = address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        if is_ours:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except (Exception, SystemExit) as error:  # Ray ends the process if a node does not answer
        raise NoCluster(f"Ray at {address} cannot be used: {describe_error(error)}") from error
    try:
        gpus, wanted = ray.cluster_resources().get("GPU", 0), cluster.gpus_per_actor
        if gpus < wanted * cluster.actors:
            raise NoCluster(
                f"{cluster.actors} actors want {wanted:g} GPUs each, there are {gpus:g}"
            )
        yield ray
    finally:
        if is_ours:
            ray.shutdown()


class _Place(NamedTuple):
    """The place of a row in a journal."""

    place: str
    file: Path
    offset: int
    is_failed: bool


def _index(folder: Path) -> dict[str, _Place]:
    """Return the place of each row; of several rows of a question one that has not failed."""
    index: dict[str, _Place] = {}
    for file in sorted((folder / "journals").glob("*.jsonl")):
        offset = 0
        with file.open("rb") as stream:
            for line in stream:
                if line.endswith(b"\n"):  # else a kill tore it
                    row = json.loads(line)
                    found = _Place(row["place"], file, offset, row["error_type"] is not None)
                    if index.get(row["key"], found).is_failed or not found.is_failed:
                        index[row["key"]] = found
                offset += len(line)
    return index


def _write(folder: Path, form: str, asked: int, seconds: float) -> Summary:
    """Write the answers in the order of the questions, and the summary."""
    index = _index(folder)
    counts: Counter[str] = Counter()
    reported: set[str] = set()

    def rows() -> Iterator[dict[str, Any]]:
        for key, place in sorted(index.items(), key=lambda item: item[1].place):
            with place.file.open("rb") as stream:
                stream.seek(place.offset)
                row = json.loads(stream.readline())
            counts.update(failed=row["error_type"] is not None)
            for name in _COSTS:
                counts[name] += row[name] or 0
                reported.update({name} if row[name] is not None else ())
            yield {"id": key, **{name: row[name] for name in COLUMNS if name != "id"}}

    with replace_file(folder / f"answers.{form}") as draft:
        if form == "jsonl":
            with draft.open("w", encoding="utf-8", errors="backslashreplace") as file:
                for row in rows():
                    kept = {"kept": json.loads(row["kept"])}
                    file.write(json.dumps(row | kept, ensure_ascii=False) + "\n")
        else:
            pa, parquet = require("pyarrow", "ray"), require("pyarrow.parquet", "ray")
            left = rows()
            with parquet.ParquetWriter(draft, arrow_schema()) as writer:
                for some in iter(lambda: list(islice(left, 1_000)), []):
                    writer.write_table(pa.Table.from_pylist(some, schema=arrow_schema()))
    summary = Summary(
        rows=len(index),
        failed=counts["failed"],
        asked=asked,
        seconds=round(seconds, 3),
        **{name: counts[name] if name in reported else None for name in _COSTS},
    )
    write_rows(folder / "summary.json", [summary._asdict()])
    return summary
