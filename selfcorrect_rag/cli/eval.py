"""``selfcorrect-rag eval``: methods compared on the same questions."""

from functools import partial
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from selfcorrect_rag.cli.options import CONFIG, JSON, config_from, parse_sets
from selfcorrect_rag.cli.terminal import progress_line, tell, tell_json

METHODS = ("rag", "self_rag", "crag", "self_crag", "instruct_rag")
DEFAULT = f"By default {', '.join(METHODS)}."
many = partial(click.option, multiple=True)


@click.command(params=[*CONFIG, JSON])
@click.argument("data")
@click.option("--out", type=Path, required=True, metavar="DIR", help="The folder of the run.")
@many("--method", "methods", metavar="[NAME=]METHOD[:KEY=VALUE,...]", help=DEFAULT)
@many("--sweep", "sweeps", metavar="METHOD:KEY=V1,V2,...", help="A method with each value.")
@many("--metric", "metrics", help="By default the papers' for such data.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum number of questions.")
def eval_command(
    out: Path, as_json: bool, sets: tuple[str, ...], config: Path | None, **given: Any
) -> int:
    """Compare methods on the questions of DATA, and write a page and a summary.

    DATA is a file of rows {"question": ..., "answers": [...]} (JSONL, CSV, or a paper's task file),
    or hf:NAME[:SPLIT]. The same command resumes a run that was stopped.

    \b
    selfcorrect-rag eval questions.jsonl --out run --method rag --method crag
    selfcorrect-rag eval questions.jsonl --out run --sweep self_rag:threshold=0,0.2,0.5
    """
    from selfcorrect_rag.evaluation.report import format_mean
    from selfcorrect_rag.evaluation.runner import EvalOptions, evaluate
    from selfcorrect_rag.serving import Parts, ServingConfig
    from selfcorrect_rag.serving.config import BadOption, first_fault
    from selfcorrect_rag.settings import GRAPHS

    parse_sets(sets, EvalOptions, ServingConfig, *GRAPHS.values())  # names a mistake
    names = EvalOptions.model_fields.keys()
    own = [item for item in sets if item.partition("=")[0].strip().replace("-", "_") in names]
    options = {name: given.pop(name) for name in names & given.keys()} | {"out": out}
    options["methods"] = options["methods"] or (() if options["sweeps"] else METHODS)
    try:
        chosen = EvalOptions(**options | parse_sets(own, EvalOptions))
    except ValidationError as error:
        raise BadOption(first_fault(error)) from error
    served = config_from([item for item in sets if item not in own], config, **given)
    show = progress_line()
    with Parts(served) as parts:
        made = evaluate(
            chosen,
            parts,
            settings=served.model_dump(mode="json", exclude_defaults=True),
            on_done=lambda outcome, left: show(f"{left} questions left"),
        )
    for row in made["skipped"]:
        tell(f"skipped {row}", err=True)
    if as_json:
        tell_json(made)
    else:
        for name, method in made["methods"].items():
            means = (f"{key} {format_mean(mean)}" for key, mean in method["metrics"].items())
            tell(f"{name}: {', '.join(means)}; {method['failed']} of {method['rows']} failed")
        if made["stopped"]:
            tell(f"stopped by {made['stopped']}: the same command asks the rest", err=True)
        tell(f"The page is {out / 'report.html'}.")
    failed = any(method["failed"] for method in made["methods"].values())
    return int(failed or bool(made["stopped"]))
