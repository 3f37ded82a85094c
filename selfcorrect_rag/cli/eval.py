"""``selfcorrect-rag eval``: methods compared on the same questions."""

from pathlib import Path
from typing import Any

import click

from selfcorrect_rag.cli.options import config_from, config_options, divide_sets
from selfcorrect_rag.cli.terminal import progress_line, tell, tell_json

METHODS = ("rag", "self_rag", "crag", "self_crag", "instruct_rag")


@click.command()
@click.argument("data")
@click.option("--out", type=Path, required=True, metavar="DIR", help="The folder of the run.")
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="[NAME=]METHOD[:KEY=VALUE,...]",
    help=f"A method with its settings; may be repeated.  [default: {' '.join(METHODS)}]",
)
@click.option(
    "--sweep",
    "sweeps",
    multiple=True,
    metavar="METHOD:KEY=V1,V2,...",
    help="A method with each value of a setting; may be repeated.",
)
@click.option("--metric", "metrics", multiple=True, help="A metric; may be repeated.")
@click.option("--limit", type=int, metavar="N", help="Maximum number of questions.")
@config_options
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(
    data: str,
    out: Path,
    methods: tuple[str, ...],
    sweeps: tuple[str, ...],
    metrics: tuple[str, ...],
    limit: int | None,
    as_json: bool,
    sets: tuple[str, ...],
    **options: Any,
) -> int:
    """Compare methods on the questions of DATA, and write a page and a summary.

    DATA is a file of rows {"question": ..., "answers": [...]} (JSONL, CSV, or a paper's task file),
    or hf:NAME[:SPLIT]. The same command resumes a run that was stopped.

    \b
    selfcorrect-rag eval questions.jsonl --out run --method rag --method crag
    selfcorrect-rag eval questions.jsonl --out run --sweep self_rag:threshold=0,0.2,0.5
    """
    from selfcorrect_rag.evaluation.evaluate import EvalOptions, evaluate, plan_evaluation
    from selfcorrect_rag.evaluation.report import format_mean
    from selfcorrect_rag.evaluation.runner import count_left
    from selfcorrect_rag.serving import Parts

    own, rest = divide_sets(sets, EvalOptions)
    config = config_from(sets=rest, **options)
    chosen = EvalOptions(
        data=data,
        out=out,
        methods=methods or (() if sweeps else METHODS),
        sweeps=sweeps,
        metrics=metrics,
        limit=limit,
        **own,
    )
    plan = plan_evaluation(chosen)
    for row in plan.task.skipped:
        tell(f"skipped {row.place}: {row.reason}", err=True)
    left = total = count_left(plan.task.questions, plan.specs, out)
    show = progress_line()

    def on_done(outcome: object) -> None:
        nonlocal left
        left -= 1
        show(f"{total - left} of {total} questions asked")

    with Parts(config) as parts:
        settings = config.model_dump(mode="json", exclude_defaults=True)
        made = evaluate(chosen, plan, parts, settings=settings, on_done=on_done)
    if as_json:
        tell_json(made)
    else:
        for name, method in made["methods"].items():
            means = (f"{key} {format_mean(mean)}" for key, mean in method["metrics"].items())
            tell(f"{name}: {', '.join(means)}; {method['failed']} failed")
        if made["stopped"]:
            tell(f"stopped by {made['stopped']}: the same command asks the rest", err=True)
        tell(f"The page is {out / 'report.html'}.")
    failed = any(method["failed"] for method in made["methods"].values())
    return int(failed or bool(made["stopped"]))
