"""Runs methods over questions into a folder, from which a killed run is resumed.

The folder holds ``settings.json`` and ``rows.jsonl``, one Outcome a line, appended as it comes.
:func:`evaluate` is the whole of ``selfcorrect-rag eval``: it adds sweeps, ``summary.json`` and
``report.html``.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from selfcorrect_rag.errors import BadArgument, BadRun, SelfCorrectError
from selfcorrect_rag.evaluation.methods import (
    Method,
    open_method,
    read_spec,
    read_specs,
    read_sweep,
    resolve_spec,
)
from selfcorrect_rag.evaluation.metrics import default_metrics, score
from selfcorrect_rag.evaluation.report import stated_answers, summary, write_report
from selfcorrect_rag.evaluation.reweigh import reweigh_run
from selfcorrect_rag.evaluation.tasks import Outcome, Question, Run, asked, outcome_from, read_task
from selfcorrect_rag.journal import Journal, digest, open_run
from selfcorrect_rag.thresholds import Stated, bound_wrong, measure_refusals

ROWS = "rows.jsonl"
OnDone = Callable[[Outcome, int], object]
FAILURES = 8
"""Questions of a method, at least, that must all fail with one error before a run gives up."""


class AllFailed(SelfCorrectError, RuntimeError):
    """The first questions of a method all failed with one error."""


class EvalOptions(BaseModel):
    """Options of ``selfcorrect-rag eval``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str = Field(description="A file of questions, or hf:NAME[:SPLIT].")
    out: Path = Field(description="The folder of the run; the same command resumes it.")
    methods: tuple[str, ...] = Field((), description="[NAME=]METHOD[:KEY=VALUE,...], each.")
    sweeps: tuple[str, ...] = Field((), description="METHOD:KEY=V1,V2,...")
    metrics: tuple[str, ...] = Field((), description="By default the papers' for such data.")
    limit: int | None = Field(None, ge=1, description="Maximum number of questions.")
    max_calls: int | None = Field(None, ge=1, description="Model calls that end the run.")
    concurrency: int = Field(16, ge=1, description="Questions in flight at a time.")


def evaluate(
    options: EvalOptions,
    parts: Any,
    *,
    settings: Mapping[str, Any] | None = None,
    on_done: OnDone = lambda outcome, left: None,
) -> dict[str, Any]:
    """Run, or resume, an evaluation; write its summary and page, and return the summary.

    All options are read and checked before a model is opened. ``parts`` is as in
    :func:`~selfcorrect_rag.evaluation.methods.open_method`; the rest as in :func:`arun_methods`.
    """
    swept = [read_sweep(text) for text in options.sweeps]
    specs = read_specs(options.methods, [variants for _, variants in swept])
    task = read_task(options.data, limit=options.limit)
    metrics = list(options.metrics) or default_metrics(task.questions)
    for metric in metrics:
        score([], metric)  # refuses an unknown one
    specs = [resolve_spec(spec, parts) for spec in specs]
    run = run_methods(
        task.questions,
        [open_method(spec, parts) for spec in specs if not spec.reweighs],
        options.out,
        settings=settings,
        max_calls=options.max_calls,
        concurrency=options.concurrency,
        on_done=on_done,
    )
    run = reweigh_run(run, specs)
    about = {"task": task.name, "data": digest(task.questions), **(settings or {})}
    about |= {spec.name: spec.as_json() for spec in specs}
    made = summary(run, metrics, about, [sweep for sweep, _ in swept])
    made["skipped"] = task.skipped
    write_report(options.out, run, made, task.name)
    return made


def calibrate_refusals(
    data: str | Path,
    out: Path,
    method: str,
    parts: Any,
    max_wrong: float,
    *,
    settings: Mapping[str, Any] | None = None,
    on_done: OnDone = lambda outcome, left: None,
) -> dict[str, Any]:
    """Choose the setting ``score_above`` of one method so that at most ``max_wrong`` of questions
    get a wrong answer (:func:`~selfcorrect_rag.thresholds.bound_wrong`).

    The questions are asked, or resumed, without that setting. A loss is 1 minus the first of their
    :func:`~selfcorrect_rag.evaluation.metrics.default_metrics`. Failed questions, and those without
    an accepted answer, are left out.

    ``data`` and ``out`` are those of :class:`EvalOptions`, and :func:`evaluate` may share the
    folder; ``method`` is ``[NAME=]METHOD[:KEY=VALUE,...]``, and the rest as in :func:`evaluate`.

    Raises:
        BadArgument: there are too few labelled questions, or no answer has a score.
    """
    task = read_task(data)
    metric, *_ = default_metrics(task.questions)
    bound_wrong([Stated(None, 0)] * len(task.questions), max_wrong)  # before any model is asked
    spec = read_spec(method)
    spec = spec._replace(settings=spec.settings.model_copy(update={"score_above": None}))
    opened = open_method(spec, parts)
    run = run_methods(task.questions, [opened], out, settings=settings, on_done=on_done)
    answers = stated_answers(run, metric).get(spec.name, [])
    if all(answer.score is None for answer in answers):
        raise BadArgument(
            f"no answer of {spec.name} has a score to refuse by: its model reports no "
            "probabilities; give one that does, or take a graph that judges"
        )
    found, without = bound_wrong(answers, max_wrong), measure_refusals(answers, None)
    about = {"metric": metric, "left_out": len(task.questions) - len(answers)}
    return {**found._asdict(), "without": without._asdict(), **about}


def run_methods(
    questions: Sequence[Question], methods: Sequence[Method], out: Path, **options: Any
) -> Run:
    """The sync twin of :func:`arun_methods`."""
    return asyncio.run(arun_methods(questions, methods, out, **options))


async def arun_methods(
    questions: Sequence[Question],
    methods: Sequence[Method],
    out: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    max_calls: int | None = None,
    concurrency: int = 16,
    on_done: OnDone = lambda outcome, left: None,
) -> Run:
    """Ask every method every question that has no answer in the folder yet.

    Questions go through all methods one after another, so that a stopped run has compared what it
    has. A failed question is a row with its error, which the next run asks again.

    Args:
        out: the folder of the run; one with other settings is refused.
        settings: what else decides the answers, as JSON values (models, index).
        max_calls: model calls of this call after which no question begins.
        concurrency: questions in flight at a time.
        on_done: called with every new outcome, and the number of answers still missing.

    Raises:
        BadRun: the folder holds another run or foreign files, or another process uses it; or two
            questions have one id.
        AllFailed: the first questions of a method all failed alike; the folder keeps its rows.
    """
    if len({question.id for question in questions}) < len(questions):
        raise BadRun("two questions have the same id: ids must be unique")
    first, errors = max(FAILURES, concurrency), dict[str, list[str]]()
    calls = missing = 0

    async def work() -> None:
        nonlocal calls, missing
        while (max_calls is None or calls < max_calls) and (pair := next(waiting, None)):
            question, method = pair
            outcome = await method.answer(question)
            journal.append(_key(method, question), outcome._asdict())
            calls += outcome.model_calls
            missing -= 1
            on_done(outcome, missing)
            seen = errors.setdefault(outcome.method, [])
            seen.append(outcome.error)
            if len(seen) == first and outcome.error and len(set(seen)) == 1:
                raise AllFailed(
                    f"the first {first} questions of {outcome.method} all failed: {outcome.error}; "
                    "run the same command again to resume"
                )

    with open_run(out, settings or {}):
        journal = Journal(out / ROWS)
        done = {key for key, row in journal.rows.items() if not row["error"]}
        left = [(q, m) for q in questions for m in methods if _key(m, q) not in done]
        waiting, missing = iter(left), len(left)
        workers = [asyncio.create_task(work()) for _ in range(max(1, concurrency))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
    keys = [_key(method, question) for method in methods for question in questions]
    outcomes = [outcome_from(journal.rows[key]) for key in keys if key in journal.rows]
    return Run(list(questions), outcomes, "max_calls" if missing else "")


def _key(method: Method, question: Question) -> str:
    """A changed question or method is asked again; accepted answers may be mended."""
    passages = [[p.page_content, p.metadata] for p in question.passages or ()]
    decides = digest([asked(question), passages, method.spec.as_json()])
    return f"{method.spec.name}/{question.id}/{decides}"
