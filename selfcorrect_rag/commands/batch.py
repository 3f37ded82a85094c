"""``selfcorrect-rag batch``: many questions through a graph, here or on Ray."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

# What loads models and graphs is imported by the functions: help and checks need none of it.
from selfcorrect_rag.commands.ask import SETTINGS, add_graph_options, checked
from selfcorrect_rag.commands.knobs import knob_option
from selfcorrect_rag.commands.ray_options import add_ray_options, check_ray_options
from selfcorrect_rag.commands.terminal import as_json, progress_lines, shown_line, tell
from selfcorrect_rag.errors import require
from selfcorrect_rag.serving.config import NO_INDEX, BadOption, ServingConfig

if TYPE_CHECKING:
    from selfcorrect_rag.bulk import Cluster, GraphMaker, Summary
    from selfcorrect_rag.bulk.finished import Finished


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register ``batch``."""
    parser = add(
        usage="%(prog)s QUESTIONS... --out DIR [options]",
        description="Answer many questions: of JSONL, CSV or Parquet files, folders, globs, or "
        "URIs such as s3://bucket/folder. Run it again after a stop: what is finished is not asked "
        "again. The exit code is 1 if rows failed.",
        examples=(
            "selfcorrect-rag batch questions.jsonl --out answers",
            "selfcorrect-rag batch questions.csv --question-column q --keep id --out answers",
            "selfcorrect-rag batch 's3://bucket/*.parquet' --format parquet --out answers",
            "selfcorrect-rag batch questions.jsonl --out answers --on ray --actors 4",
        ),
    )
    parser.add_argument("questions", nargs="+", metavar="QUESTIONS", help="where they are")
    parser.add_argument(
        "--out",
        required=True,
        metavar="DIR",
        help="The folder of the answers; with several machines, one that all share. Default: none, "
        "it must be given.",
    )
    parser.add_argument(
        "--format",
        choices=["jsonl", "parquet"],
        default="jsonl",
        help="Of the answers. Default: %(default)s.",
    )
    _add_columns(parser)
    parser.add_argument(
        "--retry-failed", action="store_true", help="Ask again what failed. Default: off."
    )
    parser.add_argument(
        "--in-flight",
        type=int,
        default=16,
        metavar="N",
        help="Questions at a time; on Ray, of each actor. Default: %(default)s.",
    )
    parser.add_argument(
        "--json", action="store_true", help="Print the summary as JSON. Default: off."
    )
    _add_cluster(parser)
    parser.add_argument(
        "--factory",
        metavar="MODULE:FUNCTION",
        help="A function of yours that makes the graph, in place of --graph and the options below. "
        "Default: none.",
    )
    parser.add_argument(
        "--again",
        type=Path,
        metavar="FILE",
        help="The graph, settings, models and index that `ask --json` saved to this file; options "
        "given beside it take their place. Default: none.",
    )
    add_graph_options(parser, [name for name in ServingConfig.model_fields if name != "chat_model"])
    parser.set_defaults(run=run)


def _add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--question-column",
        default="question",
        metavar="NAME",
        help="The column of the questions. Default: %(default)s.",
    )
    parser.add_argument(
        "--messages-column",
        default="",
        metavar="NAME",
        help="A column of conversations in its place: lists of objects with role and content, the "
        "last of them a question of the user's. Default: none.",
    )
    parser.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="NAME",
        help="A column that the answers have too; may be repeated. Default: none.",
    )


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    add_ray_options(parser, "processes that answer, each with models of its own")
    parser.add_argument(
        "--batch-size",
        type=int,
        default=64,
        metavar="N",
        help="Questions that are handed to an actor at a time. Default: %(default)s.",
    )


def run(args: argparse.Namespace) -> int:
    """Ask, report, and return the exit code: 1 if any row failed, 130 if stopped."""
    _check(args)
    maker, cluster = _maker(args), _cluster(args)
    from selfcorrect_rag.bulk import Columns, batch_questions

    try:
        with _progress() as show:
            summary = batch_questions(
                args.questions,
                maker,
                args.out,
                columns=Columns(args.question_column, args.messages_column, tuple(args.keep)),
                form=args.format,
                retry_failed=args.retry_failed,
                in_flight=args.in_flight,
                batch_size=args.batch_size,
                cluster=cluster,
                on_finished=show,
            )
    except KeyboardInterrupt:
        print("Stopped; run it again to go on from here.", file=sys.stderr)
        return 130
    tell(as_json(summary._asdict()) if args.json else _in_words(summary, args.out))
    return 1 if summary.failed else 0


def _check(args: argparse.Namespace) -> None:
    for name in ("in_flight", "batch_size"):
        if getattr(args, name) < 1:
            raise BadOption(f"--{name.replace('_', '-')} {getattr(args, name)}: give 1 or more")
    check_ray_options(args)


def _cluster(args: argparse.Namespace) -> "Cluster | None":
    if args.on == "local":
        return None
    from selfcorrect_rag.bulk import Cluster

    return Cluster(args.address, args.actors, args.gpus_per_actor)


def _maker(args: argparse.Namespace) -> "GraphMaker":
    """What the options say of the graph; names that lead nowhere are refused here."""
    if args.factory:
        fields = {*ServingConfig.model_fields, "graph", "again"}
        knobs = {name for kind in SETTINGS.values() for name in kind.model_fields}
        given = [n for n in (fields | knobs) & vars(args).keys() if getattr(args, n) is not None]
        if given:
            option = knob_option(min(given))
            raise BadOption(f"--factory makes the graph alone: not with {option}")
        from selfcorrect_rag.bulk import GraphMaker

        return GraphMaker(factory=args.factory)
    if args.again:
        from selfcorrect_rag.commands.again import take_again

        args.question = None
        take_again(args, SETTINGS)
    config, settings = checked(args)
    if config.reads_demo:
        tell(NO_INDEX, sys.stderr)
    from selfcorrect_rag.bulk import GraphMaker

    return GraphMaker.from_config(args.graph.replace("-", "_"), settings, config)


def _in_words(summary: "Summary", out: str) -> str:
    failed = ""
    if summary.failed:
        failed = (
            f" {summary.failed:,} failed: their error says why; --retry-failed asks them again."
        )
    return shown_line(
        f"{summary.rows:,} rows in {Path(out) / 'answers'}, {summary.asked:,} of them new, in "
        f"{summary.seconds:,.1f} s.{failed} {summary.model_calls:,} model calls, "
        f"{summary.prompt_tokens:,} tokens read, {summary.generated_tokens:,} written."
    )


@contextmanager
def _progress() -> Iterator[Callable[["Finished"], None]]:
    """A moving line on a terminal, else a line every few seconds; both on standard error."""
    if not sys.stderr.isatty():
        yield _counted(progress_lines())
        return
    with require("rich.console", "demo").Console(stderr=True).status("starting") as status:
        yield _counted(lambda line: status.update(line()))


def _counted(show: Callable[[Callable[[], str]], None]) -> Callable[["Finished"], None]:
    """What adds up what was finished, and shows the sums."""
    started = time.monotonic()
    rows = failed = tokens = 0

    def line() -> str:
        pace = rows / max(time.monotonic() - started, 1e-9)
        return f"{rows:,} rows, {failed:,} failed, {pace:,.1f} a second, {tokens:,} tokens"

    def count(finished: "Finished") -> None:
        nonlocal rows, failed, tokens
        rows, failed = rows + finished.rows, failed + finished.failed
        tokens += finished.tokens
        show(line)

    return count
