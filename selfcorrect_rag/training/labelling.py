"""Asks a language model many requests at a time; each answer is in a journal at once."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from langchain_core.callbacks import get_usage_metadata_callback
from langchain_core.runnables import Runnable, RunnableLambda
from pydantic import NonNegativeFloat, PositiveInt

from selfcorrect_rag.errors import EngineFailed, describe_error
from selfcorrect_rag.journal import Journal, open_run, refuse_foreign, run_folder
from selfcorrect_rag.models.chat_model import written_text
from selfcorrect_rag.models.from_name import find_language_model
from selfcorrect_rag.training.rows import Options, Progress

MAX_TRIES = 4
"""Tries of a call that raises: again after about one, two and four seconds."""
MAX_FAILURES = 20
"""Failed requests in a row after which a run gives up."""
LABELS, FAILURES = "labels.jsonl", "failures.jsonl"
"""In a run's folder: all answers so far, and what failed in the last run."""


class LabellingOptions(Options):
    """The options of all entrypoints that ask a language model."""

    run_only = Options.run_only | {"max_concurrency"}

    model: str = ""
    """PROVIDER:MODEL or MODULE:ATTRIBUTE of the model."""
    temperature: NonNegativeFloat = 0.0
    """Sampling temperature of a PROVIDER:MODEL."""
    max_tokens: PositiveInt = 1000
    """Longest answer of a PROVIDER:MODEL, in tokens."""
    max_concurrency: PositiveInt = 8
    """Maximum calls of the model at a time."""


class Request(NamedTuple):
    """A prompt, and how its answer is read."""

    key: str
    """Its key in the journals; requests with one key are asked once."""
    prompt: str
    read: Callable[[Any], Mapping[str, Any] | None]
    """Returns a row from a message or text, None if it is malformed; may raise."""


def ask_all(
    options: LabellingOptions,
    requests: Iterable[Request],
    model: Runnable[Any, Any] | None,
    progress: Progress,
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """Ask ``model``, by default ``options.model``, every request that has no label yet.

    Labels and failures are in the folder of the run that writes ``options.out``. The next run asks
    again what was malformed or failed. Returns the labels by key; and for a report how many
    requests are ``labelled``, ``malformed`` and ``failed``, and the ``usage`` of this run by model.
    """
    refuse_foreign(options.out, LABELS)
    folder = run_folder(options.out)
    limits = {"temperature": options.temperature, "max_tokens": options.max_tokens}
    model = model or find_language_model(options.model, **limits)
    patient = model.with_retry(stop_after_attempt=MAX_TRIES)
    once = {request.key: request for request in requests}
    failed = 0

    def answer(request: Request) -> str:
        """Journal the answer to a request, and return the error if there is none."""
        try:
            message = patient.invoke(request.prompt)
            row = request.read(message)
        except Exception as error:
            failures.append(request.key, {"reason": describe_error(error)})
            return describe_error(error)
        if row is None:
            failures.append(request.key, {"reason": "malformed", "answer": written_text(message)})
        else:
            labels.append(request.key, row)
        return ""

    with open_run(folder, options.identity), get_usage_metadata_callback() as usage:
        (folder / FAILURES).unlink(missing_ok=True)
        labels, failures = Journal(folder / LABELS), Journal(folder / FAILURES)
        waiting = [request for key, request in once.items() if key not in labels.rows]
        for _, error in RunnableLambda(answer).batch_as_completed(
            waiting, {"max_concurrency": options.max_concurrency}
        ):
            failed = failed + 1 if error else 0
            if progress:
                progress(1, len(waiting))
            if failed == MAX_FAILURES:
                break
    if failed == MAX_FAILURES:
        raise EngineFailed(
            f"{failed} requests in a row failed, the last one with {error}; the same command "
            "resumes from here"
        )
    reasons = [row["reason"] for row in failures.rows.values()]
    malformed = reasons.count("malformed")
    counts = {"labelled": len(once) - len(reasons), "malformed": malformed}
    usage_by_model = {name: dict(of_model) for name, of_model in usage.usage_metadata.items()}
    return labels.rows, {**counts, "failed": len(reasons) - malformed, "usage": usage_by_model}
