"""Labels rows by a language model, many calls at a time, in a journal that survives a kill."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import Runnable

from selfcorrect_rag.errors import EngineFailed
from selfcorrect_rag.models.chat_model import written_text
from selfcorrect_rag.old_journal import (
    FAILURES,
    Journal,
    keep_settings,
    only_run,
    refuse_foreign,
    refuse_other_settings,
    run_folder,
    write_rows,
)
from selfcorrect_rag.training.model_calls import ModelCall, ModelCalls


class LabellingCost(NamedTuple):
    """Calls and tokens of a run in which no call is repeated."""

    calls: int
    input_tokens: int
    """An estimate: four characters a token."""


@dataclass
class Report:
    """Outcomes of all requests, over all runs, and the usage of this run."""

    outcomes: dict[str, dict[str, int]]
    """By group: how many are ``labelled``, ``malformed`` and ``failed``."""
    calls: int = 0
    """Answers of the model in this run."""
    input_tokens: int = 0
    """As counted by the model; 0 where it does not."""
    output_tokens: int = 0


LABELS = "labels.jsonl"
"""File in the run's folder: all labels so far, in the order they came."""
MALFORMED = "malformed"
"""The reason of a failure that is settled: the model answered, in none of the forms asked for."""
MAX_TRIES = 4
"""Tries of a call that raises: again after about a second, two and four."""
MAX_FAILURES = 20
"""Requests in a row that may fail before a run gives up."""


@dataclass(frozen=True)
class LabelRequest:
    """A prompt for a model to label."""

    prompt: str
    group: str
    """Counts its outcome in the report."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that its row holds besides the label."""

    @cached_property
    def key(self) -> str:
        """Its key in files: the same group and prompt are the same request."""
        known = f"{self.group}\0{self.prompt}".encode(errors="surrogatepass")
        return hashlib.sha256(known).hexdigest()[:32]


AnswerReader = Callable[[LabelRequest, str], Mapping[str, Any] | None]
"""Reads the label of an answer as fields of its row; None where it is malformed."""


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
        requests: Iterable[LabelRequest],
        read: AnswerReader,
        out: Path,
        settings: Mapping[str, Any],
        *,
        max_attempts: int = 2,
    ) -> None:
        """Find out what is missing; nothing is written before :meth:`run`.

        Args:
            requests: what to ask; of equal ones the first.
            read: label of an answer.
            out: the file.
            settings: JSON values on which the labels depend, such as the model's name.
            max_attempts: most answers to one request, while they are malformed; at least 1.

        Raises:
            BadRun: ``out`` is of a run with other settings or of no run, or a folder.
        """
        if max_attempts < 1:
            raise ValueError(f"max_attempts is {max_attempts}; a request is made at least once")
        refuse_foreign(out, LABELS)
        self._requests: dict[str, LabelRequest] = {}
        for request in requests:
            self._requests.setdefault(request.key, request)
        self._read, self.out, self._max_attempts = read, out, max_attempts
        self._settings, self._folder = settings, run_folder(out)
        refuse_other_settings(self._folder, settings)
        self._read_journals()

    @property
    def pending(self) -> list[LabelRequest]:
        """Requests without an outcome, in order."""
        requests = self._requests.items()
        return [request for key, request in requests if self._outcome(key) == "failed"]

    def cost(self) -> LabellingCost:
        """Calls and tokens of :meth:`run`."""
        prompts = [request.prompt for request in self.pending]
        tokens = sum(count_tokens_approximately([HumanMessage(prompt)]) for prompt in prompts)
        return LabellingCost(len(prompts), tokens)

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
            BadRun: another run writes ``out``.
            EngineFailed: :data:`MAX_FAILURES` requests in a row failed; what came before is kept.
        """
        with self._calls(max_concurrency, on_done) as (calls, report):
            calls.run(_with_retry(model))
        return report

    async def arun(
        self,
        model: Runnable[Any, Any],
        *,
        max_concurrency: int = 8,
        on_done: Callable[[], object] | None = None,
    ) -> Report:
        """The async twin of :meth:`run`."""
        with self._calls(max_concurrency, on_done) as (calls, report):
            await calls.arun(_with_retry(model))
        return report

    @contextmanager
    def _calls(
        self, max_concurrency: int, on_done: Callable[[], object] | None
    ) -> Iterator[tuple[ModelCalls, Report]]:
        """The calls that are missing, in a locked folder; ``out`` and the report follow them."""
        report = Report({})

        def keep(call: ModelCall) -> None:
            request = self._requests[call.key]
            report.calls += len(call.answers)
            for answer in call.answers:
                usage = getattr(answer, "usage_metadata", None) or {}
                report.input_tokens += usage.get("input_tokens", 0)
                report.output_tokens += usage.get("output_tokens", 0)
            if call.row is not None:
                row = {"group": request.group, **request.fields, **call.row}
                self.labels.append(call.key, row)
            else:
                answers = [written_text(answer) for answer in call.answers]
                reason = call.error or MALFORMED
                row = {"group": request.group, "reason": reason, "answers": answers}
                self.failures.append(call.key, row)
            if on_done:
                on_done()

        with only_run(self._folder):
            keep_settings(self._folder, self._settings)
            self._read_journals()  # another run may have written since
            calls = ModelCalls(
                map(self._call, self.pending),
                keep,
                max_concurrency=max_concurrency,
                max_failures=MAX_FAILURES,
            )
            yield calls, report
            if calls.gave_up:
                raise EngineFailed(
                    f"{MAX_FAILURES} requests in a row failed, the last one with {calls.gave_up}; "
                    "the same command goes on from here"
                )
            rows = self.labels.rows
            write_rows(self.out, ({"key": k, **rows[k]} for k in self._requests if k in rows))
            self.failures.keep(self.failures.rows.keys() - rows.keys())
            report.outcomes = self._outcomes()

    def _call(self, request: LabelRequest) -> ModelCall:
        def read(answer: Any) -> Mapping[str, Any] | None:
            return self._read(request, written_text(answer))

        return ModelCall(request.key, request.prompt, read, self._max_attempts)

    def _read_journals(self) -> None:
        self.labels = Journal(self._folder / LABELS)
        self.failures = Journal(self._folder / FAILURES)

    def _outcome(self, key: str) -> str:
        """As :class:`Report` counts it; what was never asked counts as failed."""
        if key in self.labels.rows:
            return "labelled"
        return MALFORMED if self.failures.rows.get(key, {}).get("reason") == MALFORMED else "failed"

    def _outcomes(self) -> dict[str, dict[str, int]]:
        counted: dict[str, Counter[str]] = {}
        for key, request in self._requests.items():
            outcomes = counted.setdefault(request.group, Counter(labelled=0, malformed=0, failed=0))
            outcomes[self._outcome(key)] += 1
        return {group: dict(outcomes) for group, outcomes in counted.items()}


def _with_retry(model: Runnable[Any, Any]) -> Runnable[Any, Any]:
    return model.with_retry(stop_after_attempt=MAX_TRIES)
