"""``selfcorrect-rag train critic-data`` and ``train critic``: Self-RAG's critic from a teacher."""

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from selfcorrect_rag.critic_prompts import ASPECTS
from selfcorrect_rag.extras import require
from selfcorrect_rag.models.opening import find_chat_model
from selfcorrect_rag.training.critic_data import (
    CriticDataSettings,
    critic_labelling,
    read_critic_rows,
    read_instances,
    token_counts,
)


def add_parsers(kinds: Any) -> None:
    """Register the two kinds of training."""
    data = kinds.add_parser(
        "critic-data",
        help="the data of Self-RAG's critic: reflection tokens by any chat model",
        description="Ask a model for the reflection tokens of instructions and outputs, in the "
        "paper's words. The same command goes on after a kill, and asks for what is new in the "
        "data. What failed is in OUT.failed.jsonl; the exit code is 1 where the command is worth "
        "repeating.",
    )
    data.add_argument(
        "--data",
        type=Path,
        required=True,
        metavar="FILE",
        help='JSONL rows {"instruction": ..., "output": ...}, and where there are: input, '
        "evidence, preceding_sentences, target_output",
    )
    data.add_argument("--out", type=Path, required=True, metavar="FILE", help="labels, in JSONL")
    data.add_argument(
        "--model",
        required=True,
        metavar="MODULE:ATTRIBUTE|PROVIDER:NAME",
        help="a LangChain model of your own, or one that langchain knows, such as openai:gpt-4o",
    )
    data.add_argument(
        "--aspects",
        nargs="+",
        choices=list(ASPECTS),
        default=list(ASPECTS),
        metavar="ASPECT",
        help="what to ask about: %(choices)s; all by default",
    )
    data.add_argument(
        "--sample", type=_count, metavar="N", help="most requests an aspect; all by default"
    )
    data.add_argument(
        "--max-concurrency",
        type=_count,
        default=8,
        metavar="N",
        help="most calls at a time (default: %(default)s)",
    )
    for setting in dataclasses.fields(CriticDataSettings):
        if setting.name != "model":
            data.add_argument(
                f"--{setting.name.replace('_', '-')}",
                type=_count if isinstance(setting.default, int) else float,
                default=setting.default,
                metavar="X",
                help="default: %(default)s",
            )
    data.add_argument("--dry-run", action="store_true", help="show the cost and stop")
    data.set_defaults(run=run_critic_data)


def _count(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def run_critic_data(args: argparse.Namespace) -> int:
    """Show what labelling costs, label, and print how it came out."""
    names = [setting.name for setting in dataclasses.fields(CriticDataSettings)]
    settings = CriticDataSettings(**{name: getattr(args, name) for name in names})
    print(json.dumps(dataclasses.asdict(settings)), flush=True)
    instances = read_instances(args.data)
    labelling = critic_labelling(
        instances, args.out, settings, aspects=args.aspects, sample=args.sample
    )
    calls, tokens = labelling.cost()
    print(
        f"{calls:,} calls: about {tokens:,} tokens in, at most {calls * settings.max_tokens:,} "
        "out, and more where an answer is malformed",
        flush=True,
    )
    if args.dry_run:
        return 0
    model = find_chat_model(
        args.model, temperature=settings.temperature, max_tokens=settings.max_tokens
    )
    bar = require("tqdm", "train").tqdm(total=calls, desc="labels", unit="", file=sys.stderr)
    with bar:
        report = labelling.run(model, max_concurrency=args.max_concurrency, on_done=bar.update)
    counts = token_counts(read_critic_rows(args.out))
    print(json.dumps({**dataclasses.asdict(report), "tokens": counts}, indent=2))
    print(f"the labels are in {args.out}, what failed in {labelling.failures}")
    return int(any(outcomes["failed"] for outcomes in report.outcomes.values()))
