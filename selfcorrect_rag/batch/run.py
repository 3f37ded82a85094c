"""Asks a graph many questions into a folder; a killed run is resumed by the same call.

OUT/answers.jsonl      a row for each question, in their order
OUT/journals/*.jsonl   each row at once when it is finished
OUT/settings.json, summary.json, lock
"""

import asyncio
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.errors import BadRows, BadRun, describe_error, find_named, one_line, require
from selfcorrect_rag.evaluation.runner import AllFailed
from selfcorrect_rag.journal import Journal, digest, open_run, read_rows, write_rows
from selfcorrect_rag.models.chat_model import written_text
from selfcorrect_rag.nodes.limits import CallCounter
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.state import Usage

COLUMNS = (
    *("id", "question", "answer", "cited_answer", "citations", "action", "grades", "notes"),
    *("stopped", "model_calls", "prompt_tokens", "generated_tokens", "seconds", "error", "kept"),
)
"""The same for every graph; docs/batch.md says what each means."""
FAILURES = 32
"""First questions that must all fail until a run gives up, or as many as are in flight."""
Show = Callable[[Mapping[str, Any]], object]
_MACHINE = ("base_url", "engine_options")
"""Fields of a configuration that say where a model runs, which may change when a run resumes."""
Opened = Callable[[], AbstractContextManager[Runnable[Any, Any]]]


class Cluster(NamedTuple):
    """A Ray cluster, and what a run takes of it; each actor is a process with its own graph."""

    address: str | None = None
    """HOST:PORT of its head, or ``auto``; None: RAY_ADDRESS, else Ray is started here."""
    actors: int = 1
    gpus_per_actor: float = 0.0
    batch_size: int = 64
    """Questions that are handed to an actor at a time."""


class Question(NamedTuple):
    """A row of the input."""

    key: str
    """32 hexadecimal digits of the question and what is kept."""
    text: str
    kept: dict[str, Any]


class Summary(NamedTuple):
    """The counts of a folder of answers; ``asked`` are the rows that this run has finished."""

    rows: int
    failed: int
    asked: int
    seconds: float
    model_calls: int


def batch_questions(
    questions: str | Path | Iterable[str | Path],
    graph: str,
    out: str | Path,
    *,
    config: Mapping[str, Any] | None = None,
    keep: Sequence[str] = (),
    in_flight: int = 16,
    cluster: Cluster | None = None,
    progress: Show = lambda row: None,
) -> Summary:
    """Ask a graph every question that has no answer in the folder ``out`` yet.

    Equal questions with equal kept columns are one row. A failed question is a row with its error,
    which the next call asks again.

    Args:
        questions: files of JSON lines or CSV with a column ``question``.
        graph: self_rag, crag, self_crag, instruct_rag, or MODULE:FUNCTION that makes a graph.
        out: a folder; on Ray one that all machines share.
        config: fields of a :class:`~selfcorrect_rag.serving.config.ServingConfig`, and settings.
        keep: other columns that the answers have too.
        in_flight: questions at a time, of this process or of each actor.
        cluster: where actors run; None asks in this process.
        progress: called with each row that is finished.

    Raises:
        BadRows: before the first question, if a row is not one.
        BadRun: ``out`` holds something else or other settings, or another run works in it; there is
            no such graph or cluster.
        AllFailed: the first questions all failed.
    """
    started, folder, asked = time.monotonic(), Path(out), list[bool]()
    in_flight = max(1, in_flight)
    given = read_questions([questions] if isinstance(questions, str | Path) else questions, keep)
    opened = partial(open_graph, graph, config or {})
    settings = {name: value for name, value in (config or {}).items() if name not in _MACHINE}

    def show(row: Mapping[str, Any]) -> None:
        asked.append(row["error"] is not None)
        progress(row)
        if len(asked) == max(FAILURES, in_flight) and all(asked):
            raise AllFailed(f"the first {len(asked)} questions all failed: {row['error']}")

    with open_run(folder, {"graph": graph, "config": settings}):
        (folder / "journals").mkdir(exist_ok=True)
        done = _read_answers(folder)
        left = [q for q in given if q.key not in done or done[q.key]["error"]]
        try:
            if left and cluster:
                _ask_on_ray(left, opened, folder, cluster, in_flight, show)
            elif left:
                journal = Journal(folder / "journals" / f"{uuid.uuid4().hex}.jsonl")
                with opened() as ready:
                    asyncio.run(_ask_all(ready, left, journal, asyncio.Semaphore(in_flight), show))
        finally:
            rows = _read_answers(folder)
            written = [{"id": q.key, **rows[q.key]} for q in given if q.key in rows]
            write_rows(folder / "answers.jsonl", written)
            failed = sum(row["error"] is not None for row in written)
            calls = sum(row["model_calls"] for row in written)
            seconds = round(time.monotonic() - started, 3)
            summary = Summary(len(written), failed, len(asked), seconds, calls)
            write_rows(folder / "summary.json", [summary._asdict()])
    return summary


def read_questions(files: Iterable[str | Path], keep: Sequence[str] = ()) -> list[Question]:
    """Read the questions of JSONL and CSV files, with the columns to ``keep``; equal rows once."""
    found: dict[str, Question] = {}
    unknown = set(keep)
    for file in map(Path, files):
        for number, row in read_rows(file):
            text = row.get("question")
            if not isinstance(text, str) or not text.strip():
                got = one_line(dict(row), 80)
                raise BadRows(f"{file}:{number}: question must be a text, not blank, got {got}")
            kept = {name: row.get(name) for name in keep}
            unknown -= row.keys()
            key = digest([text, json.dumps(kept)])
            found.setdefault(key, Question(key, text, kept))
    if unknown:
        raise BadRows(f"no row has the column {sorted(unknown)[0]}, which is to be kept")
    return list(found.values())


def _read_answers(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the row of each question; of several one that has not failed."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted((folder / "journals").glob("*.jsonl")):
        for key, row in Journal(file).rows.items():
            if found.get(key, row)["error"] or not row["error"]:
                found[key] = row
    return found


@contextmanager
def open_graph(name: str, config: Mapping[str, Any]) -> Iterator[Runnable[Any, Any]]:
    """Open a graph with its models and indexes."""
    if ":" not in name:
        with Parts(ServingConfig(**config)) as parts:
            yield parts.graph(name)
        return
    try:
        graph = find_named(name, Runnable)
    except Exception as error:  # any code runs in a module that is imported
        raise BadRun(f"{name} makes no graph ({describe_error(error)})") from error
    if not isinstance(graph, Runnable):
        raise BadRun(f"{name} must make a graph, got {type(graph).__name__}")
    yield graph


async def _ask_all(
    graph: Runnable[Any, Any],
    questions: Sequence[Question],
    journal: Journal,
    room: asyncio.Semaphore,
    show: Show = lambda row: None,
) -> None:
    """Ask as many questions at a time as there is room for, and journal each row at once."""

    async def ask(question: Question) -> None:
        async with room:
            if question.key not in journal.rows:
                journal.append(question.key, await _ask(graph, question))
                show(journal.rows[question.key])

    await asyncio.gather(*map(ask, questions))


async def _ask(graph: Runnable[Any, Any], question: Question) -> dict[str, Any]:
    counter, started = CallCounter(), time.monotonic()
    row = {"question": question.text, **dict.fromkeys(COLUMNS[2:]), "kept": question.kept}
    try:
        config = RunnableConfig(callbacks=[counter])
        row |= answered(await graph.ainvoke({"question": question.text}, config), counter.usage)
    except Exception as error:  # whatever it is, the other questions are asked
        row |= {"error": describe_error(error), "model_calls": counter.usage["model_calls"]}
        row |= {"citations": [], "grades": [], "notes": []}
    row["seconds"] = round(time.monotonic() - started, 3)
    return row


def answered(result: Mapping[str, Any], counted: Usage) -> dict[str, Any]:
    """Return the columns of a graph's result, but those of the question.

    ``result`` has an ``answer``, or ``messages`` that end with it; ``counted`` are the costs of a
    graph that does not report its own.
    """
    answer = result.get("answer")
    if not isinstance(answer, str):
        if not result.get("messages"):
            raise ValueError("the graph's result has neither an answer nor messages")
        answer = written_text(result["messages"][-1])
    cited = ("number", "title", "source", "quote")
    row = {
        "answer": answer,
        "cited_answer": result.get("cited_answer") or answer,
        "citations": [{key: c.get(key) for key in cited} for c in result.get("citations") or []],
        "action": result.get("action"),
        "grades": [g["score"] for g in result.get("grades") or [] if g.get("score") is not None],
        "notes": result.get("notes") or [],
        "stopped": result.get("stopped"),
        "model_calls": (result.get("usage") or counted)["model_calls"],
    }
    for name in ("prompt_tokens", "generated_tokens"):
        # A model that reports nothing does not hide what the others have read.
        known = [step[name] for step in result.get("route") or [counted] if step[name] is not None]
        row[name] = sum(known) if known else None
    plain: dict[str, Any] = json.loads(json.dumps(row, default=str))
    return plain


class _Actor:
    """Answers batches of questions on a worker; a batch has one journal, whoever resumes it."""

    def __init__(self, opened: Opened, here: str, folder: str, run: str, in_flight: int) -> None:
        self._journals, self._run, self._fatal = Path(folder) / "journals", run, ""
        self._room = asyncio.Semaphore(in_flight)
        try:
            if not self._journals.is_dir():
                raise BadRun(f"a worker does not see {folder}; all machines must share it")
            os.chdir(here)  # so that the paths of the configuration are those of the driver
            self._graph = ExitStack().enter_context(opened())
        except Exception as error:  # Ray would try again for ever
            self._fatal = describe_error(error)

    async def __call__(self, batch: Any) -> dict[str, list[str]]:
        if self._fatal:
            return {"row": [json.dumps({"fatal": self._fatal})]}
        questions = [Question(*json.loads(text)) for text in batch["question"]]
        name = digest([self._run, *(question.key for question in questions)])
        journal = Journal(self._journals / f"{name}.jsonl")
        await _ask_all(self._graph, questions, journal, self._room)
        return {"row": [json.dumps(journal.rows[question.key]) for question in questions]}


def _ask_on_ray(
    questions: Sequence[Question],
    opened: Opened,
    folder: Path,
    cluster: Cluster,
    in_flight: int,
    show: Show,
) -> None:
    """Let Ray Data hand batches to actors, which journal their rows in ``folder``."""
    with open_ray(cluster) as ray:
        rows = [{"question": json.dumps(question)} for question in questions]
        blocks = -(-len(rows) // cluster.batch_size)  # one actor answers a block
        data = ray.data.from_items(rows, override_num_blocks=blocks)
        data.context.enable_progress_bars = False
        given = [opened, os.getcwd(), str(folder.resolve()), uuid.uuid4().hex, in_flight]
        answers = data.map_batches(
            _Actor,
            batch_size=cluster.batch_size,
            compute=ray.data.ActorPoolStrategy(size=cluster.actors),
            num_cpus=1,
            num_gpus=cluster.gpus_per_actor,
            fn_constructor_args=given,
        )
        for answer in answers.iter_rows():
            row = json.loads(answer["row"])
            if "fatal" in row:
                raise BadRun(f"on a worker: {row['fatal']}")
            show(row)


@contextmanager
def open_ray(cluster: Cluster) -> Iterator[Any]:
    """The module ``ray``, connected; a Ray that is started here ends with the block.

    `BadRun` if nothing answers at the address, or there are too few GPUs.
    """
    # Read by Ray when it is imported; a user's own values stand.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DATA_LOG_LEVEL", "CRITICAL")
    ray = require("ray", "ray")
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
        raise BadRun(f"Ray at {address} cannot be used: {describe_error(error)}") from error
    try:
        gpus, wanted = ray.cluster_resources().get("GPU", 0), cluster.gpus_per_actor
        if gpus < wanted * cluster.actors:
            raise BadRun(f"{cluster.actors} actors want {wanted:g} GPUs each, not {gpus:g}")
        yield ray
    finally:
        if is_ours:
            ray.shutdown()
