"""Labels rows by a language model, many calls at a time, in a journal that survives a kill."""

import asyncio
import hashlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import ContextThreadPoolExecutor

from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.errors.messages import describe_error
from selfcorrect_rag.prompts.parts import written_text
from selfcorrect_rag.training.journal import (
    FAILURES,
    Journal,
    keep_settings,
    only_run,
    refuse_foreign,
    refuse_other_settings,
    run_folder,
    write_rows,
)


class Cost(NamedTuple):
    """What a run will take where no call has to be repeated."""

    calls: int
    input_tokens: int
    """An estimate: four characters a token."""


@dataclass
class Report:
    """How requests came out, of all runs together, and what this run used."""

    outcomes: dict[str, dict[str, int]]
    """By group: how many are ``labelled``, ``malformed`` and ``failed``."""
    calls: int = 0
    """Answers of the model in this run."""
    input_tokens: int = 0
    """As the model itself tells, as far as it does."""
    output_tokens: int = 0


LABELS = "labels.jsonl"
"""In the run's folder: all that it was ever told, in the order it came."""
MALFORMED = "malformed"
"""The reason of a failure that is settled: the model answered, in none of the forms asked for."""
TRIES = 4
"""Of one call that raises: after about a second, two and four."""
PATIENCE = 20
"""Requests in a row that may fail before a run gives up."""


@dataclass(frozen=True)
class Request:
    """One thing to ask a model."""

    prompt: str
    group: str
    """What its outcome is counted under."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that its row holds besides the label."""

    @cached_property
    def key(self) -> str:
        """What it is known by in files: the same group and prompt are the same request."""
        known = f"{self.group}\0{self.prompt}".encode(errors="surrogatepass")
        return hashlib.sha256(known).hexdigest()[:32]


AnswerReader = Callable[[Request, str], Mapping[str, Any] | None]
"""The fields of the row that come from an answer; None where it is malformed."""


class Labelling:
    """Asks a model for every request that no earlier run for ``out`` was given an answer to.

    Answers are kept as they come in ``labels.jsonl`` of the run's folder (see
    :func:`~.journal.run_folder`): after a kill, or with other requests, only what is missing is
    asked for. Then ``out`` is written: a JSON row for each request with an answer and for no other,
    in their order, with its ``key``, ``group`` and fields. ``failures.jsonl`` of the folder holds
    what failed and why: a call that raised is made again by the next run, an answer that stayed
    malformed is settled.
    """

    def __init__(
        self,
        requests: Iterable[Request],
        read: AnswerReader,
        out: Path,
        settings: Mapping[str, Any],
        *,
        attempts: int = 2,
    ) -> None:
        """Find out what is missing; nothing is written before :meth:`run`.

        Args:
            requests: what to ask; of equal ones the first.
            read: what an answer says.
            out: the file.
            settings: JSON values on which the labels depend, such as the model's name.
            attempts: most answers to one request, while they are malformed; at least 1.

        Raises:
            BadTrainingData: ``out`` is of a run with other settings or of no run, or a folder.
        """
        if attempts < 1:
            raise ValueError(f"attempts is {attempts}; a request is made at least once")
        refuse_foreign(out, LABELS)
        self._requests: dict[str, Request] = {}
        for request in requests:
            self._requests.setdefault(request.key, request)
        self.read, self.out, self.attempts = read, out, attempts
        self._settings, self._folder = settings, run_folder(out)
        refuse_other_settings(self._folder, settings)
        self._read_journals()

    @property
    def pending(self) -> list[Request]:
        """What is still to be asked, in order."""
        requests = self._requests.items()
        return [request for key, request in requests if self._outcome(key) == "failed"]

    def cost(self) -> Cost:
        """What :meth:`run` will take."""
        prompts = [request.prompt for request in self.pending]
        tokens = sum(count_tokens_approximately([HumanMessage(prompt)]) for prompt in prompts)
        return Cost(len(prompts), tokens)

    def run(
        self,
        model: Runnable[Any, Any],
        *,
        max_concurrency: int = 8,
        on_done: Callable[[], object] | None = None,
    ) -> Report:
        """Ask for what is missing.

        Args:
            model: a chat model or an LLM.
            max_concurrency: most calls at a time.
            on_done: called after each request, whatever its outcome.

        Raises:
            BadTrainingData: another run writes ``out``.
            EngineFailed: :data:`PATIENCE` requests in a row failed; what came before is kept.
        """
        with (
            self._running(max_concurrency, on_done) as running,
            ContextThreadPoolExecutor(max_workers=max_concurrency) as pool,
        ):
            try:
                list(pool.map(running.work, [_patient(model)] * max_concurrency))
            finally:
                running.stop()
        return self._report(running)

    async def arun(
        self,
        model: Runnable[Any, Any],
        *,
        max_concurrency: int = 8,
        on_done: Callable[[], object] | None = None,
    ) -> Report:
        """The async twin of :meth:`run`."""
        with self._running(max_concurrency, on_done) as running:
            workers = [
                asyncio.create_task(running.awork(_patient(model))) for _ in range(max_concurrency)
            ]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
        return self._report(running)

    @contextmanager
    def _running(
        self, max_concurrency: int, on_done: Callable[[], object] | None
    ) -> Iterator["_Running"]:
        if max_concurrency < 1:
            raise ValueError(f"max_concurrency is {max_concurrency}; some call must be made")
        with only_run(self._folder):
            keep_settings(self._folder, self._settings)
            self._read_journals()  # another run may have written since
            running = _Running(self, on_done or (lambda: None))
            yield running
            if running.gave_up:
                raise EngineFailed(
                    f"{PATIENCE} requests in a row failed, the last one with {running.gave_up}; "
                    "the same command goes on from here"
                )
            rows = self.labels.rows
            write_rows(self.out, ({"key": k, **rows[k]} for k in self._requests if k in rows))
            self.failures.keep(self.failures.rows.keys() - rows.keys())

    def _read_journals(self) -> None:
        self.labels = Journal(self._folder / LABELS)
        self.failures = Journal(self._folder / FAILURES)

    def _outcome(self, key: str) -> str:
        """As :class:`Report` counts it; what was never asked counts as failed."""
        if key in self.labels.rows:
            return "labelled"
        return MALFORMED if self.failures.rows.get(key, {}).get("reason") == MALFORMED else "failed"

    def _report(self, running: "_Running") -> Report:
        counted: dict[str, Counter[str]] = {}
        for key, request in self._requests.items():
            outcomes = counted.setdefault(request.group, Counter(labelled=0, malformed=0, failed=0))
            outcomes[self._outcome(key)] += 1
        by_group = {group: dict(outcomes) for group, outcomes in counted.items()}
        return Report(by_group, running.calls, running.input_tokens, running.output_tokens)


class _Running:
    """One call of ``run``: the requests that its workers have still to take."""

    def __init__(self, labelling: Labelling, on_done: Callable[[], object]) -> None:
        self._labelling, self._todo, self._on_done = labelling, deque(labelling.pending), on_done
        self._lock, self._failed_in_a_row = threading.Lock(), 0
        self.gave_up = ""
        self.calls = self.input_tokens = self.output_tokens = 0

    def work(self, model: Runnable[Any, Any]) -> None:
        while asking := self._next():
            try:
                while asking.is_open:
                    asking.take(model.invoke(asking.request.prompt))
            except Exception as error:
                asking.fail(error)
            self._keep(asking)

    async def awork(self, model: Runnable[Any, Any]) -> None:
        while asking := self._next():
            try:
                while asking.is_open:
                    asking.take(await model.ainvoke(asking.request.prompt))
            except Exception as error:
                asking.fail(error)
            self._keep(asking)

    def stop(self) -> None:
        """Let the workers end after what they are asking now."""
        with self._lock:
            self._todo.clear()

    def _next(self) -> "_Asking | None":
        with self._lock:
            return _Asking(self._labelling, self._todo.popleft()) if self._todo else None

    def _keep(self, asking: "_Asking") -> None:
        key, group = asking.request.key, asking.request.group
        with self._lock:
            self.calls += len(asking.answers)
            self.input_tokens += asking.input_tokens
            self.output_tokens += asking.output_tokens
            if asking.row is not None:
                row = {"group": group, **asking.request.fields, **asking.row}
                self._labelling.labels.append(key, row)
            else:
                row = {"group": group, "reason": asking.reason, "answers": asking.answers}
                self._labelling.failures.append(key, row)
            has_failed = asking.row is None and asking.reason != MALFORMED
            self._failed_in_a_row = self._failed_in_a_row + 1 if has_failed else 0
            if self._failed_in_a_row >= PATIENCE:
                self.gave_up = asking.reason
                self._todo.clear()
            self._on_done()


class _Asking:
    """One request, asked again while its answers are malformed."""

    def __init__(self, labelling: Labelling, request: Request) -> None:
        self.request, self._read, self._attempts = request, labelling.read, labelling.attempts
        self.answers: list[str] = []
        self.row: Mapping[str, Any] | None = None
        self.reason = MALFORMED
        self.input_tokens = self.output_tokens = 0

    @property
    def is_open(self) -> bool:
        return self.row is None and len(self.answers) < self._attempts

    def take(self, answer: Any) -> None:
        usage = getattr(answer, "usage_metadata", None) or {}
        self.input_tokens += usage.get("input_tokens", 0)
        self.output_tokens += usage.get("output_tokens", 0)
        self.answers.append(written_text(answer))
        self.row = self._read(self.request, self.answers[-1])

    def fail(self, error: Exception) -> None:
        self.reason = describe_error(error)


def _patient(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    return model.with_retry(stop_after_attempt=TRIES)
