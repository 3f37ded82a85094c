"""``selfcorrect-rag batch``: many questions through a graph."""

import itertools
from functools import partial
from pathlib import Path
from typing import Any

import click

from selfcorrect_rag.cli.options import CONFIG, GRAPH, config_from
from selfcorrect_rag.cli.terminal import count, progress_line, tell

number = partial(click.option, type=click.IntRange(1), show_default=True)


@click.command(params=[GRAPH, *CONFIG])
@click.argument("questions", nargs=-1, required=True)
@click.option("--out", type=Path, required=True, metavar="DIR", help="The folder of the answers.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="A column the answers have too.")
@number("--in-flight", default=16, help="Questions at a time.")
@click.option("--ray", is_flag=True, help="Ask on Ray, in a cluster or on this machine.")
@number("--actors", default=1, help="Processes that answer on Ray.")
def batch_command(
    questions: tuple[str, ...], out: Path, graph: str, ray: bool, actors: int, **options: Any
) -> int:
    """Answer the QUESTIONS in files: JSONL or CSV with a column `question`.

    The same command resumes a run that was stopped, and asks again what failed.
    """
    how = {name: options.pop(name) for name in ("keep", "in_flight")}
    config = config_from(graph=graph, **options)
    from selfcorrect_rag.batch import Cluster, batch_questions

    show, asked = progress_line(), itertools.count(1)
    summary = batch_questions(
        questions,
        graph,
        out,
        config=config.model_dump(mode="json", exclude_defaults=True),
        cluster=Cluster(actors=actors) if ray else None,
        progress=lambda row: show(f"{count(next(asked), 'question')} asked"),
        **how,
    )
    tell(
        f"{count(summary.rows, 'row')} in {out}, {summary.asked:,} of them new, in "
        f"{summary.seconds:,.1f} s; {count(summary.model_calls, 'model call')}."
    )
    if summary.failed:
        tell(f"{summary.failed:,} failed; the same command asks them again", err=True)
    return int(bool(summary.failed))
