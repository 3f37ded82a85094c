"""``selfcorrect-rag train``: fine-tuning, each kind a subcommand that resumes and reports."""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path

from selfcorrect_rag.commands import (
    train_critic,
    train_generator,
    train_generator_data,
    train_rationales,
)
from selfcorrect_rag.commands.terminal import as_json, tell
from selfcorrect_rag.commands.training_options import (
    add_files,
    add_run_options,
    add_settings,
    run_options_from,
    settings_from,
)
from selfcorrect_rag.training.evaluator import (
    EvaluatorSettings,
    read_corpus,
    read_graded,
    train_evaluator,
)


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register ``train``."""
    parser = add()
    kinds = parser.add_subparsers(required=True, metavar="KIND")
    train_rationales.add_parser(kinds)
    evaluator = kinds.add_parser(
        "evaluator",
        help="CRAG's retrieval evaluator",
        description="Fine-tune a T5 (or any sequence classifier) to grade passages from -1 to 1. "
        "The same command goes on after a kill.",
    )
    add_files(
        evaluator,
        'JSONL rows {"question": ..., "positives": [...], "negatives": [...]}',
        folder=True,
    )
    evaluator.add_argument(
        "--corpus",
        type=Path,
        metavar="FILE",
        help='JSONL rows {"text": ...} to mine hard negatives in; default: all positives',
    )
    add_settings(evaluator, EvaluatorSettings)
    add_run_options(evaluator)
    evaluator.set_defaults(run=run_evaluator)
    train_critic.add_parsers(kinds)
    train_generator.add_parsers(kinds)
    train_generator_data.add_parser(kinds)


def run_evaluator(args: argparse.Namespace) -> int:
    """Fine-tune an evaluator and print its report."""
    settings = settings_from(args, EvaluatorSettings)
    tell(as_json(dataclasses.asdict(settings)))
    corpus = read_corpus(args.corpus) if args.corpus else ()
    rows, run_options = read_graded(args.data), run_options_from(args)
    report = train_evaluator(rows, args.out, settings, run_options, corpus=corpus)
    tell(as_json(report, indent=2))
    tell(f"the evaluator is in {args.out / 'evaluator'}")
    return 0
