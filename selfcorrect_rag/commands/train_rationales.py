"""``selfcorrect-rag train rationales``: InstructRAG's training data from questions and answers."""

import argparse
import dataclasses
import sys
from functools import partial
from pathlib import Path
from typing import Any

from selfcorrect_rag.commands.actor_options import (
    add_calls_of_actor,
    opened_model,
)
from selfcorrect_rag.commands.ray_options import add_ray_options, check_ray_options
from selfcorrect_rag.commands.terminal import as_json, tell
from selfcorrect_rag.commands.training_options import (
    add_calls,
    add_files,
    add_settings,
    refuse_own_data,
    settings_from,
)
from selfcorrect_rag.errors import require
from selfcorrect_rag.journal import FAILURES, run_folder
from selfcorrect_rag.models.by_name import find_language_model
from selfcorrect_rag.training.rationales import (
    RationaleReport,
    RationaleSettings,
    estimate_usage,
    synthesize_rationales,
    write_template_rationales,
)
from selfcorrect_rag.training.samples import read_samples


def add_parser(kinds: Any) -> None:
    """Register ``rationales``."""
    parser = kinds.add_parser(
        "rationales",
        help="InstructRAG's rationales, by any LangChain model",
        description="Let a model explain how documents lead to the known answer. The same command "
        "goes on after a kill and tries again what failed; the exit code is 1 where rows are left "
        "without a rationale.",
    )
    add_files(
        parser,
        'JSON or JSONL rows {"question": ..., "answers": [...], "documents": [...]}, documents '
        "best first; the official files too",
        out="JSONL rows with rationales, to be written",
    )
    by = parser.add_mutually_exclusive_group(required=True)
    by.add_argument(
        "--model",
        metavar="MODULE:ATTRIBUTE|PROVIDER:MODEL",
        help="a LangChain LLM or chat model of your own, or one that langchain knows by name; "
        "required without --template",
    )
    by.add_argument(
        "--template",
        dest="model",
        action="store_const",
        const="",
        help="no model: the paper's template (Table 6)",
    )
    add_settings(parser, RationaleSettings)
    for name, ablation in (("answers", "ground-truth answers"), ("documents", "documents")):
        parser.add_argument(
            f"--without-{name}",
            dest=f"with_{name}",
            action="store_false",
            help=f"the paper's ablation: the model sees no {ablation}",
        )
    parser.add_argument(
        "--consistent-only",
        action="store_true",
        help="leave out rows whose rationale does not contain the answer",
    )
    add_calls(parser)
    add_ray_options(parser, "processes that hold the models")
    add_calls_of_actor(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Synthesise, or only estimate, and print a report."""
    check_ray_options(args, "batch_size")
    refuse_own_data(args)
    rows = read_samples(args.data, answered=args.with_answers or not args.model)
    settings = settings_from(args, RationaleSettings)
    if not args.model:
        if args.estimate:
            tell("0 calls: the template needs no model", sys.stderr)
            return 0
        return _reported(write_template_rationales(rows, args.out, settings), args.out)
    usage = estimate_usage(rows, args.out, settings)
    tell(
        f"{len(rows):,} rows, {usage.calls:,} calls to make: about {usage.prompt_tokens:,} tokens "
        f"of prompts and {usage.rationale_tokens:,} of rationales",
        file=sys.stderr,
    )
    if args.estimate:
        return 0
    make = partial(find_language_model, args.model, temperature=settings.temperature)
    with (
        opened_model(args, make) as llm,
        require("tqdm", "train").tqdm(
            total=usage.calls, desc="rationales", unit="", file=sys.stderr
        ) as bar,
    ):
        report = synthesize_rationales(
            llm,
            rows,
            args.out,
            settings,
            consistent_only=args.consistent_only,
            max_concurrency=args.max_concurrency,
            on_done=bar.update,
        )
    return _reported(report, args.out)


def _reported(report: RationaleReport, out: Path) -> int:
    tell(as_json(dataclasses.asdict(report), indent=2))
    tell(f"the rationales are in {out}")
    if report.failed:
        tell(f"what failed, and why, is in {run_folder(out) / FAILURES}: run it again")
    return 1 if report.failed else 0
