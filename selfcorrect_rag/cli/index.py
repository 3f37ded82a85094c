"""``selfcorrect-rag index``: your own documents into an index."""

import dataclasses
from pathlib import Path
from typing import Any

import click

from selfcorrect_rag.cli.options import JSON
from selfcorrect_rag.cli.terminal import count, progress_line, tell, tell_json
from selfcorrect_rag.serving.config import DEFAULT_INDEX


@click.command(params=[JSON])
@click.argument("paths", nargs=-1, required=True, type=Path)
@click.option("--index", type=Path, default=DEFAULT_INDEX, show_default=True, help="Where it is.")
@click.option("--embeddings", type=click.Choice(["bm25"]), help="bm25: by words alone.")
@click.option("--chunk-words", type=click.IntRange(21), default=120, show_default=True)
@click.option("--encoding", help="Of text files that are not UTF-8, such as gbk.")
@click.option("--prune", is_flag=True, help="Drop the passages of files that no longer exist.")
def index_command(
    paths: tuple[Path, ...], index: Path, embeddings: Any, as_json: bool, **options: Any
) -> int:
    """Put files and folders into an index; run it again after a change or a stop.

    Files that cannot be read are named with the reason, and then the exit status is 1; the rest is
    in the index. It is 1 too if the index is empty.
    """
    from selfcorrect_rag.errors import require
    from selfcorrect_rag.search import index_paths, open_index

    require("bm25s", "demo")
    show = progress_line()
    try:
        report = index_paths(
            paths,
            open_index(index, embeddings, create=True),
            on_progress=lambda done, n, source: show(f"{done:.0%}  {n:,} passages  {source}"),
            **options,
        )
    except KeyboardInterrupt:
        tell("stopped; run it again to resume", err=True)
        return 130
    if as_json:
        tell_json(dataclasses.asdict(report))
    else:
        tell(f"{count(report.files, 'file')} read, {report.unchanged:,} unchanged.")
        changed = f"{count(report.added, 'passage')} added, {report.removed:,} removed"
        tell(f"{changed}; {report.passages:,} in {index}.")
        for problem in report.problems:
            kind = "read in part" if problem.partly else "not read"
            tell(f"{kind}: {problem.path}: {problem.reason}", err=True)
        if report.vanished and not options["prune"]:
            gone = count(len(report.vanished), "indexed file")
            tell(f"{gone} no longer in their place (--prune drops them)")
    if not report.passages:
        tell(f"{index} is empty: there was no text to read", err=True)
    return int(not report.passages or any(not problem.partly for problem in report.problems))
