"""Asks a language model many requests at a time; each answer is in a journal at once."""

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import ContextThreadPoolExecutor
from pydantic import NonNegativeFloat, PositiveInt

from selfcorrect_rag.errors import EngineFailed, describe_error
from selfcorrect_rag.journal import FAILURES, Journal, open_run, refuse_foreign, run_folder
from selfcorrect_rag.models.chat_model import written_text
from selfcorrect_rag.training.rows import Options, Progress

MALFORMED = "malformed"
"""The reason of a settled failure: the model answered in none of the forms that were asked for."""
MAX_TRIES = 4
"""Tries of a call that raises: again after about one, two and four seconds."""
MAX_FAILURES = 20
"""Failed requests in a row after which a run gives up."""
LABELS = "labels.jsonl"
"""In a run's folder: all answers so far, in the order in which they came."""


class LabellingOptions(Options):
    """The options of all entrypoints that ask a language model."""

    run_only = frozenset({"max_concurrency", "estimate"})

    temperature: NonNegativeFloat = 0.0
    """Sampling temperature of a PROVIDER:MODEL."""
    max_concurrency: PositiveInt = 8
    """Maximum calls of the model at a time."""
    estimate: bool = False
    """Only report the calls and tokens it would take."""


@dataclass(frozen=True)
class Request:
    """A prompt, and how its answer is read."""

    key: str
    """Its key in the journals; of requests with one key the first is asked."""
    prompt: str
    read: Callable[[Any], Mapping[str, Any] | None]
    """Returns a row from a message or text, None if it is malformed; may raise."""
    attempts: int = 1
    """Maximum answers while they are malformed."""


@dataclass
class Labels:
    """The journals of a run, and the usage of this process, as far as the model counts it."""

    labels: Journal
    failures: Journal
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0

    @classmethod
    def at(cls, folder: Path) -> "Labels":
        """The journals in a folder."""
        return cls(Journal(folder / LABELS), Journal(folder / FAILURES))

    @property
    def usage(self) -> dict[str, int]:
        """Calls and tokens of this process."""
        names = ("calls", "input_tokens", "output_tokens")
        return {name: getattr(self, name) for name in names}

    def outcome(self, key: str) -> str:
        """``labelled``, ``malformed``, or ``failed``, which includes requests never made."""
        if key in self.labels.rows:
            return "labelled"
        reason = self.failures.rows.get(key, {}).get("reason")
        return MALFORMED if reason == MALFORMED else "failed"

    def pending(self, requests: Iterable[Request]) -> list[Request]:
        """The requests without an outcome, each key once."""
        once: dict[str, Request] = {}
        for request in requests:
            once.setdefault(request.key, request)
        return [request for key, request in once.items() if self.outcome(key) == "failed"]

    def cost(self, requests: Iterable[Request]) -> dict[str, int]:
        """Calls and approximate prompt tokens that ``requests`` still need."""
        prompts = [HumanMessage(request.prompt) for request in self.pending(requests)]
        tokens = sum(count_tokens_approximately([prompt]) for prompt in prompts)
        return {"calls": len(prompts), "input_tokens": tokens}

    def ask(
        self,
        model: Runnable[Any, Any],
        requests: Iterable[Request],
        max_concurrency: int,
        progress: Progress = None,
    ) -> None:
        """Ask ``model`` for every request without an outcome; outcomes are journaled as they come.

        A call that raises is tried :data:`MAX_TRIES` times, and again by the next run.

        Raises:
            EngineFailed: :data:`MAX_FAILURES` requests in a row failed; what came before is kept.
        """
        patient, waiting = model.with_retry(stop_after_attempt=MAX_TRIES), self.pending(requests)
        left, lock, errors = iter(waiting), threading.Lock(), list[str]()
        stopped = threading.Event()

        def work() -> None:
            while not stopped.is_set():
                with lock:
                    request = next(left, None)
                if request is None:
                    return
                answers, row, reason = _answer(patient, request)
                with lock:
                    self._keep(request, answers, row, reason)
                    errors.append(reason) if reason not in ("", MALFORMED) else errors.clear()
                    if progress:
                        progress(1, len(waiting))
                    if len(errors) >= MAX_FAILURES:
                        stopped.set()

        with ContextThreadPoolExecutor(max_workers=max_concurrency) as pool:
            try:
                for worker in as_completed([pool.submit(work) for _ in range(max_concurrency)]):
                    worker.result()
            finally:
                stopped.set()
        if len(errors) >= MAX_FAILURES:
            raise EngineFailed(
                f"{MAX_FAILURES} requests in a row failed, the last one with {errors[-1]}; the "
                "same command resumes from here"
            )
        self.failures.keep(self.failures.rows.keys() - self.labels.rows.keys())

    def _keep(
        self, request: Request, answers: list[Any], row: Mapping[str, Any] | None, reason: str
    ) -> None:
        for answer in answers:
            counted = getattr(answer, "usage_metadata", None) or {}
            self.calls += 1
            self.input_tokens += counted.get("input_tokens", 0)
            self.output_tokens += counted.get("output_tokens", 0)
        if row is not None:
            self.labels.append(request.key, row)
        else:
            texts = [written_text(answer) for answer in answers]
            self.failures.append(request.key, {"reason": reason, "answers": texts})


def _answer(
    model: Runnable[Any, Any], request: Request
) -> tuple[list[Any], Mapping[str, Any] | None, str]:
    """The answers to a request, and the row of the last one, or the reason why there is none."""
    answers: list[Any] = []
    try:
        while len(answers) < request.attempts:
            answers.append(model.invoke(request.prompt))
            if (row := request.read(answers[-1])) is not None:
                return answers, row, ""
    except Exception as error:
        return answers, None, describe_error(error)
    return answers, None, MALFORMED


@contextmanager
def open_labels(out: Path, options: Options, journal: str = LABELS) -> Iterator[Labels]:
    """Lock the run that writes the file ``out``; ``journal`` marks ``out`` as this command's.

    Raises:
        BadRun: ``out`` is another file or a run with other options, or another run writes it.
    """
    refuse_foreign(out, journal)
    with open_run(run_folder(out), options.identity):
        yield Labels.at(run_folder(out))


def request_key(group: str, prompt: str) -> str:
    """The key of a judgement in files: the same group and prompt are the same request."""
    return hashlib.sha256(f"{group}\0{prompt}".encode(errors="surrogatepass")).hexdigest()[:32]
