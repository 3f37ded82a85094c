"""``selfcorrect-rag batch``: many questions through a graph, here or on Ray."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from selfcorrect_rag.cli.options import config_from, config_options, graph_option
from selfcorrect_rag.cli.terminal import progress_line, tell, tell_json


@click.command()
@click.argument("questions", nargs=-1, required=True)
@click.option("--out", type=Path, required=True, metavar="DIR", help="The folder of the answers.")
@graph_option
@config_options
@click.option(
    "--factory", metavar="MODULE:FUNCTION", help="Makes a graph of your own, without --graph."
)
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "parquet"]), default="jsonl", show_default=True
)
@click.option("--question-column", default="question", show_default=True, metavar="NAME")
@click.option("--messages-column", default="", metavar="NAME", help="Conversations instead.")
@click.option("--keep", multiple=True, metavar="NAME", help="A column that the answers have too.")
@click.option("--retry-failed", is_flag=True, help="Ask again what has failed.")
@click.option("--in-flight", type=click.IntRange(1), default=16, show_default=True)
@click.option("--actors", type=int, default=0, metavar="N", help="Processes that answer on Ray.")
@click.option("--address", metavar="HOST:PORT", help="The head of a Ray cluster, or auto.")
@click.option("--gpus-per-actor", type=float, default=0.0, metavar="N")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON.")
def command(
    questions: tuple[str, ...],
    out: Path,
    graph: str,
    factory: str | None,
    form: str,
    question_column: str,
    messages_column: str,
    keep: tuple[str, ...],
    retry_failed: bool,
    in_flight: int,
    actors: int,
    address: str | None,
    gpus_per_actor: float,
    as_json: bool,
    **options: Any,
) -> int:
    """Answer the QUESTIONS of JSONL, CSV or Parquet files; a stopped run resumes.

    \b
    selfcorrect-rag batch questions.jsonl --out answers
    selfcorrect-rag batch questions.csv --question-column q --keep id --out answers
    selfcorrect-rag batch questions.jsonl --out answers --actors 4      (on Ray)
    """
    from selfcorrect_rag.batch import Cluster, Columns, GraphSource, batch_questions

    config = config_from(graph=graph, **options)
    source = GraphSource(graph, config.model_dump(mode="json", exclude_defaults=True))
    on_ray = actors or address
    finished = failed = 0
    show = progress_line()

    def count(row: Mapping[str, Any]) -> None:
        nonlocal finished, failed
        finished, failed = finished + 1, failed + (row["error_type"] is not None)
        show(f"{finished:,} rows, {failed:,} failed")

    summary = batch_questions(
        list(questions),
        factory or source,
        out,
        columns=Columns(question_column, messages_column, keep),
        form=form,
        retry_failed=retry_failed,
        in_flight=in_flight,
        cluster=Cluster(address, max(actors, 1), gpus_per_actor) if on_ray else None,
        progress=count,
    )
    if as_json:
        tell_json(summary._asdict())
    else:
        again = " (--retry-failed asks them again)" if summary.failed else ""
        tell(f"{summary.rows:,} rows in {out}, {summary.asked:,} of them new", bold=True)
        tell(f"{summary.failed:,} failed{again}, {summary.model_calls or 0:,} model calls")
        read, written = (
            "unknown" if n is None else f"{n:,}"
            for n in (summary.prompt_tokens, summary.generated_tokens)
        )
        tell(f"tokens read: {read}, written: {written}; {summary.seconds:,.1f} s")
    return int(summary.failed > 0)
