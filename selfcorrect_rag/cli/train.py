"""``selfcorrect-rag train`` and ``calibrate``: the papers' trainings and their data."""

import itertools
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from selfcorrect_rag.cli.options import FILE, JSON, SET, parse_sets
from selfcorrect_rag.cli.terminal import count, progress_line, tell, tell_json

NAMES = (
    *("critic-data", "critic", "generator-data", "generator"),
    *("evaluator", "rationales", "instruct"),
)


@click.command(params=[SET, FILE, JSON])
@click.argument("name", type=click.Choice(NAMES))
def train_command(name: str, sets: tuple[str, ...], config: Path | None, as_json: bool) -> None:
    """Make the training data NAME, or fine-tune the model NAME; a stopped one resumes.

    \b
    selfcorrect-rag train evaluator                 (lists the options)
    selfcorrect-rag train evaluator --set data=rows.jsonl --set out=my-evaluator
    """
    from selfcorrect_rag.serving.config import BadOption, first_fault, read_config
    from selfcorrect_rag.training import ENTRYPOINTS

    entrypoint: Any = ENTRYPOINTS[name]
    if not sets and config is None:
        tell(f"{entrypoint.help}\n")
        for key, field in entrypoint.options.model_fields.items():
            default = field.get_default(call_default_factory=True)
            tell(key if field.is_required() else f"{key} = {default}", bold=field.is_required())
            tell(f"    {field.description}")
        return
    given = read_config(config) if config else {}
    given |= parse_sets(sets, entrypoint.options)
    try:
        options = entrypoint.options(**given)
    except ValidationError as error:
        raise BadOption(first_fault(error)) from error
    show, finished = progress_line(), itertools.count(1)
    report = entrypoint.run(options, lambda _, total: show(f"{next(finished)} of {total}"))
    if as_json:
        tell_json(report)
        return
    for key, value in report.items():
        tell(f"{key}: {value}")


@click.command(params=[JSON])
@click.argument("data", type=Path)
@click.option("--evaluator", metavar="NAME", help="What grades.  [default: the embedded reader]")
def calibrate_command(data: Path, evaluator: str | None, as_json: bool) -> None:
    """Choose CRAG's thresholds from the labelled questions of DATA, and say how they do.

    DATA has JSONL rows {"question": ..., "positives": [...], "negatives": [...]}, on which the
    evaluator was not trained. Each counts as two retrievals: all its passages, and its irrelevant
    ones alone.
    """
    from selfcorrect_rag.serving import Parts, ServingConfig
    from selfcorrect_rag.training.evaluator import Graded, calibrate_evaluator
    from selfcorrect_rag.training.rows import read_rows

    rows = read_rows(data, Graded)
    if not (any(row.positives for row in rows) and any(row.negatives for row in rows)):
        raise click.UsageError(f"{data} needs relevant and irrelevant passages")
    with Parts(ServingConfig(evaluator=evaluator)) as parts:
        found = calibrate_evaluator(parts.evaluator, rows)
    if as_json:
        tell_json({"questions": len(rows), **found})
        return
    upper, lower = found["thresholds"]["upper"], found["thresholds"]["lower"]
    tell(f"--set upper={upper:.3f} --set lower={lower:.3f}, from {count(len(rows), 'question')}")
    tell(f"worth of the actions: {found['action_accuracy']:.3f} on these questions")
    for half in found["held_out"]:
        tell(f"worth on a half that did not choose them: {half['action_accuracy']:.3f}")
