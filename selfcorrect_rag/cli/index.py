"""``selfcorrect-rag index``: your own documents into an index."""

import dataclasses
from pathlib import Path
from typing import Any

import click

from selfcorrect_rag.cli.options import json_option
from selfcorrect_rag.cli.terminal import progress_line, tell, tell_json
from selfcorrect_rag.serving.config import DEFAULT_INDEX


@click.command()
@click.argument("paths", nargs=-1, required=True, type=Path)
@click.option("--index", type=Path, default=DEFAULT_INDEX, show_default=True, help="Where it is.")
@click.option(
    "--embeddings",
    metavar="bm25|MODULE:ATTRIBUTE",
    help="Words alone, or LangChain embeddings of your own.  [default: ours, with words]",
)
@click.option("--chunk-words", type=click.IntRange(21), default=120, show_default=True)
@click.option("--encoding", help="Of text files that are not UTF-8, such as gbk.")
@click.option("--prune", is_flag=True, help="Drop the passages of files that no longer exist.")
@json_option
def command(
    paths: tuple[Path, ...], index: Path, embeddings: str | None, as_json: bool, **options: Any
) -> int:
    """Put files and folders into an index; run it again after a change or a stop.

    Files that cannot be read are named with the reason, and then the exit status is 1; the rest is
    in the index. It is 1 too if the index is empty.
    """
    from selfcorrect_rag.errors import require
    from selfcorrect_rag.search import index_paths, open_index
    from selfcorrect_rag.serving.parts import find_embeddings

    require("bm25s", "demo")
    show = progress_line()
    try:
        with open_index(index, find_embeddings(embeddings), create=True) as opened:
            report = index_paths(
                paths,
                opened,
                on_progress=lambda done, n, source: show(f"{done:.0%}  {n:,} passages  {source}"),
                **options,
            )
    except KeyboardInterrupt:
        tell("stopped; run it again to resume", err=True)
        return 130
    if as_json:
        tell_json(dataclasses.asdict(report))
    else:
        tell(f"{report.files:,} files read, {report.unchanged:,} unchanged.")
        changed = f"{report.added:,} passages added, {report.removed:,} removed"
        tell(f"{changed}; {report.passages:,} in {index}.")
        for problem in report.problems:
            kind = "read in part" if problem.partly else "not read"
            tell(f"{kind}: {problem.path}: {problem.reason}", err=True)
        if report.vanished and not options["prune"]:
            tell(f"{len(report.vanished):,} indexed files no longer exist (--prune drops them)")
    if not report.passages:
        tell(f"{index} is empty: there was no text to read", err=True)
    return int(not report.passages or any(not problem.partly for problem in report.problems))
