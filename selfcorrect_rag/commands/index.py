"""``selfcorrect-rag index``: the user's own documents into an index."""

import argparse
import dataclasses
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selfcorrect_rag.commands.ray_options import add_ray_options, check_ray_options
from selfcorrect_rag.commands.terminal import as_json, progress_lines, shown_line, tell
from selfcorrect_rag.errors import require
from selfcorrect_rag.search import (
    IndexProgress,
    IndexReport,
    Problem,
    index_paths,
    open_or_make_index,
)
from selfcorrect_rag.search.chunking import CHUNK_OVERLAP, CHUNK_WORDS
from selfcorrect_rag.search.files import KINDS, find_files
from selfcorrect_rag.search.index import BATCH_SIZE, is_index
from selfcorrect_rag.search.loading import MAX_BYTES
from selfcorrect_rag.search.open_index import open_or_make_list
from selfcorrect_rag.serving.config import DEFAULT_INDEX, BadOption

MAX_BATCH_SIZE = 10_000
"""SQLite takes no more values in one statement than some three times that."""
_COUNT: dict[str, Any] = {"type": int, "metavar": "N"}


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register the command."""
    parser = add(
        description=(
            f"Put {', '.join(KINDS)} files, gzipped or not, and folders of them, into an index. "
            "Run it again after a change or a stop: what is in is not "
            "done again. Files that cannot be read are named at the end, the rest is in; the exit "
            "code is 1 only where no file could be read. Where there is none at all, no index is "
            "made."
        ),
        examples=(
            "selfcorrect-rag index notes/ papers/report.pdf",
            "selfcorrect-rag index notes/ --index work --chunk-words 200 --prune",
            "selfcorrect-rag index notes/ --embeddings bm25",
            "selfcorrect-rag index notes/ --store my_stores:pages --on ray --actors 4",
        ),
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or a folder")
    for name, default, options, text in (
        (
            "index",
            None,
            {"type": Path, "metavar": "DIR"},
            f"Where the index is or will be; with --store, the list of what is in it. Default: "
            f"{DEFAULT_INDEX}; with --store, a folder of its name beside that.",
        ),
        ("chunk-words", CHUNK_WORDS, _COUNT, "Most words of a passage."),
        ("chunk-overlap", CHUNK_OVERLAP, _COUNT, "Words that a passage repeats of the one before."),
        (
            "max-mib",
            MAX_BYTES // 2**20,
            _COUNT,
            "Largest file in MiB, uncompressed; a quarter of it for all but .txt, .md and .jsonl, "
            "which alone are not read whole.",
        ),
        ("batch-size", BATCH_SIZE, _COUNT, "Passages embedded and written at once."),
    ):
        parser.add_argument(
            f"--{name}",
            default=default,
            help=f"{text} Default: %(default)s." if default else text,
            **options,
        )
    parser.add_argument(
        "--embeddings",
        metavar="minilm|bm25|MODULE:ATTRIBUTE",
        help="How passages are found: by all-MiniLM-L6-v2, by their words, or by LangChain "
        "embeddings of your own. Default: those of the index, minilm for a new one.",
    )
    parser.add_argument(
        "--store",
        metavar="MODULE:ATTRIBUTE",
        help="A LangChain vector store of your own to put passages into, or a function that makes "
        "it. Default: none.",
    )
    add_ray_options(parser, "processes that embed and write into a --store that machines share")
    for name, text in (
        ("prune", "Drop the passages of files under PATH that no longer exist."),
        ("follow-links", "Read links that lead outside PATH too; else they are named at the end."),
        ("json", "Print the report as JSON."),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=f"{text} Default: off.")
    parser.set_defaults(run=run)


def _check(args: argparse.Namespace) -> None:
    """Refuse bad options before an index is made for them."""
    words, overlap = args.chunk_words, args.chunk_overlap
    if not 0 <= overlap < words:
        raise BadOption(
            f"--chunk-words {words} with --chunk-overlap {overlap}: give an overlap of 0 or more "
            "words, and passages of more words than that"
        )
    if args.store and args.embeddings:
        raise BadOption("--store has its own embeddings: not with --embeddings")
    if args.max_mib < 1:
        raise BadOption(f"--max-mib {args.max_mib}: give 1 or more")
    if not 1 <= args.batch_size <= MAX_BATCH_SIZE:
        raise BadOption(f"--batch-size {args.batch_size}: give 1 to {MAX_BATCH_SIZE:,}")
    check_ray_options(args)
    if args.on == "ray" and not args.store:
        raise BadOption(
            "--on ray writes to a vector store that machines share, and an index of ours takes one "
            "process: name the store with --store"
        )


def run(args: argparse.Namespace) -> int:
    """Index, report, and return the exit code: 1 if no file could be read, 130 if stopped."""
    _check(args)
    if args.index is None:
        beside = DEFAULT_INDEX.with_name(str(args.store).replace(":", "."))
        args.index = beside if args.store else DEFAULT_INDEX
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # the report names broken files
    try:
        report = _indexed(args)
    except KeyboardInterrupt:
        print("Stopped; run it again to go on from here.", file=sys.stderr)
        return 130
    if args.json:
        tell(as_json(dataclasses.asdict(report)))
    else:
        tell(_in_words(report, args.index, args.store or args.index, args.prune))
    return 0 if report.files + report.unchanged else 1


def _indexed(args: argparse.Namespace) -> IndexReport:
    if not is_index(args.index):
        found = list(find_files(args.paths, follow_links=args.follow_links))
        problems = tuple(problem for problem in found if isinstance(problem, Problem))
        if len(problems) == len(found):  # what would be made is an index of nothing
            return IndexReport(0, 0, 0, 0, 0, problems, ())
    options: dict[str, Any] = {
        "chunk_words": args.chunk_words,
        "chunk_overlap": args.chunk_overlap,
        "batch_size": args.batch_size,
        "max_bytes": args.max_mib * 2**20,
        "prune": args.prune,
        "follow_links": args.follow_links,
    }
    with _progress() as show:
        if args.on == "ray":
            from selfcorrect_rag.bulk.indexing import index_on_ray

            return index_on_ray(
                args.paths,
                args.store,
                args.index,
                address=args.address,
                actors=args.actors,
                gpus_per_actor=args.gpus_per_actor,
                on_progress=show,
                **options,
            )
        index = (
            open_or_make_list(args.index, args.store)
            if args.store
            else open_or_make_index(args.index, args.embeddings)
        )
        with index:
            return index_paths(args.paths, index, on_progress=show, **options)


def _in_words(report: IndexReport, folder: Path, place: object, pruned: bool) -> str:
    lines = [
        f"Nothing to index was found: no index was made in {folder}."
        if not is_index(folder)
        else f"{report.files:,} files read, {report.unchanged:,} unchanged. "
        f"{report.added:,} passages added, {report.removed:,} removed; "
        f"{report.passages:,} in {place}."
    ]
    if report.vanished and not pruned:
        lines.append(
            f"{len(report.vanished):,} indexed files no longer exist (--prune drops them):"
        )
        lines += [f"  {source}" for source in report.vanished]
    whole = [problem for problem in report.problems if not problem.partly]
    partly = [problem for problem in report.problems if problem.partly]
    for heading, problems in (("Not read:", whole), ("Read in part:", partly)):
        if problems:
            lines += [heading, *(f"  {problem.path}: {problem.reason}" for problem in problems)]
    return "\n".join(map(shown_line, lines))


@contextmanager
def _progress() -> Iterator[Callable[[IndexProgress], None]]:
    """A bar on a terminal, else a line every few seconds; both on standard error."""
    if not sys.stderr.isatty():
        show = progress_lines()
        yield lambda progress: show(lambda: f"{progress.done:4.0%}  {_state(progress)}")
        return
    rich = require("rich.progress", "chroma")
    columns = (
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TextColumn("{task.description}", markup=False),
        rich.TimeRemainingColumn(),
    )
    console = require("rich.console", "chroma").Console(stderr=True)
    with rich.Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda progress: bar.update(
            task, completed=progress.done, description=shown_line(_state(progress))
        )


def _state(progress: IndexProgress) -> str:
    return f"{progress.passages:,} passages, {progress.added:,} new  {Path(progress.source).name}"
