"""``selfcorrect-rag train``: the papers' trainings and their data."""

import itertools
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from selfcorrect_rag.cli.options import FILE, JSON, SET, parse_sets
from selfcorrect_rag.cli.terminal import progress_line, tell, tell_json

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
    # By name: in some, the second argument is the model.
    report = entrypoint.run(options, progress=lambda _, total: show(f"{next(finished)} of {total}"))
    if as_json:
        tell_json(report)
        return
    for key, value in report.items():
        tell(f"{key}: {value}")
