"""One call for a whole evaluation, which the command line makes: options in, summary out."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, Field

from selfcorrect_rag.errors import BadArgument, describe_error, find_named
from selfcorrect_rag.evaluation.methods import (
    BadMethod,
    Parts,
    Spec,
    Sweep,
    open_method,
    read_specs,
    read_sweep,
    resolve_spec,
)
from selfcorrect_rag.evaluation.metrics import METRICS, Entails, default_metrics
from selfcorrect_rag.evaluation.outcomes import Outcome
from selfcorrect_rag.evaluation.report import refuse_foreign_reports, summary, write_report
from selfcorrect_rag.evaluation.reweigh import reweigh_run
from selfcorrect_rag.evaluation.runner import Limits, run_methods
from selfcorrect_rag.evaluation.tasks import Task, read_task


class EvalOptions(BaseModel):
    """Options of ``selfcorrect-rag eval``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str = Field(description="A file of questions, or hf:NAME[:SPLIT].")
    out: Path = Field(description="The folder of the run; the same command resumes it.")
    methods: tuple[str, ...] = Field((), description="[NAME=]METHOD[:KNOB=VALUE,...], each.")
    sweeps: tuple[str, ...] = Field(
        (), description="METHOD:KNOB=V1,V2,... or METHOD:ablations, each."
    )
    metrics: tuple[str, ...] = Field(
        (), description="Metrics; by default the papers' for such data."
    )
    format: str | None = Field(None, description="Of the rows; by default by their fields.")
    limit: int | None = Field(None, ge=1, description="Maximum number of questions.")
    passages: int | None = Field(None, ge=1, description="For methods that do not set it.")
    max_calls: int | None = Field(
        None, ge=1, description="Model calls after which no question begins."
    )
    max_tokens: int | None = Field(None, ge=1, description="Tokens after which no question begins.")
    concurrency: int = Field(16, ge=1, description="Questions in flight at a time.")
    entailment: str | None = Field(
        None, description="MODULE:ATTRIBUTE of a function of premise and hypothesis, for citations."
    )


class Plan(NamedTuple):
    """The questions and methods of a run, read and checked before any model is opened."""

    task: Task
    specs: list[Spec]
    sweeps: list[Sweep]
    metrics: list[str]
    entails: Entails | None


def plan_evaluation(options: EvalOptions) -> Plan:
    """Read the questions and the methods.

    Raises:
        BadTask, BadMethod, BadArgument, BadRun: a part of the options cannot be used.
    """
    refuse_foreign_reports(options.out)
    specs, sweeps = read_variants(options.methods, options.sweeps, options.passages)
    task = read_task(options.data, format=options.format, limit=options.limit)
    metrics = list(options.metrics) or default_metrics(task.questions)
    if unknown := [name for name in metrics if name not in METRICS]:
        raise BadArgument(f"metric must be one of {', '.join(METRICS)}, got {unknown[0]}")
    entails = None if options.entailment is None else find_entailment(options.entailment)
    if entails is None and any(METRICS[name].needs_entailment for name in metrics):
        raise BadArgument("citation metrics need entailment, MODULE:ATTRIBUTE of a function")
    return Plan(task, specs, sweeps, metrics, entails)


def read_variants(
    methods: Sequence[str], sweeps: Sequence[str] = (), passages: int | None = None
) -> tuple[list[Spec], list[Sweep]]:
    """Read methods and sweeps; a variant that stands in several is asked once.

    Raises:
        BadMethod: there is none, one cannot be read, or two that differ have one name.
    """
    specs = (
        {spec.name: spec for spec in read_specs(methods, passages)} if methods or not sweeps else {}
    )
    found = []
    for text in sweeps:
        sweep, variants = read_sweep(text, passages)
        found.append(sweep)
        for spec in variants:
            if specs.setdefault(spec.name, spec) != spec:
                raise BadMethod(f"{text}: {spec.name} is already another variant")
    return list(specs.values()), found


def find_entailment(name: str) -> Entails:
    """The function at ``module:attribute``; BadArgument if there is none."""
    try:
        function: Any = find_named(name, object)
    except Exception as error:  # any code runs when a module is imported
        raise BadArgument(f"cannot open {name} ({describe_error(error)})") from error
    if not callable(function):
        raise BadArgument(f"{name} must be a function of a premise and a hypothesis")
    return cast(Entails, function)


def evaluate(
    options: EvalOptions,
    plan: Plan,
    parts: Parts,
    *,
    settings: Mapping[str, Any] | None = None,
    on_done: Callable[[Outcome], object] = lambda outcome: None,
) -> dict[str, Any]:
    """Run, or resume, an evaluation; write its summary and page, and return the summary.

    Args:
        options: of the run.
        plan: what :func:`plan_evaluation` made of them.
        parts: models, retriever and graphs, such as ``serving.parts.Parts``.
        settings: what else decides the answers (models, index), as JSON values.
        on_done: called with every new outcome.
    """
    specs = [resolve_spec(spec, parts) for spec in plan.specs]
    run = run_methods(
        plan.task.questions,
        [open_method(spec, parts) for spec in specs if not spec.reweighs],
        options.out,
        settings=settings,
        limits=Limits(options.max_calls, options.max_tokens, options.concurrency),
        on_done=on_done,
    )
    run = reweigh_run(run, specs)
    about = {
        "task": plan.task.name,
        "data": plan.task.fingerprint,
        "skipped": len(plan.task.skipped),
        **(settings or {}),
        **{spec.name: spec.as_json() for spec in specs},
    }
    made = summary(run, plan.metrics, about, plan.sweeps, entails=plan.entails)
    write_report(options.out, run, made, plan.task.name)
    return made
