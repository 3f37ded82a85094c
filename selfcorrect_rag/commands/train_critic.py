"""``selfcorrect-rag train critic-data`` and ``train critic``: Self-RAG's critic from a teacher."""

import argparse
import dataclasses
import sys
from functools import partial
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
    add_run_options,
    add_settings,
    count,
    run_options_from,
    settings_from,
)
from selfcorrect_rag.errors import require
from selfcorrect_rag.models.by_name import find_language_model
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.training.agreement import agreement_in_words
from selfcorrect_rag.training.critic import CriticSettings, train_critic
from selfcorrect_rag.training.critic_data import (
    CriticDataSettings,
    critic_labelling,
    read_critic_rows,
    read_instances,
    token_counts,
)
from selfcorrect_rag.training.fine_tuning import is_first


def add_parsers(kinds: Any) -> None:
    """Register the two kinds of training."""
    data = kinds.add_parser(
        "critic-data",
        help="the data of Self-RAG's critic: reflection tokens by any chat model",
        description="Ask a model for the reflection tokens of instructions and outputs, in the "
        "paper's words. The same command goes on after a kill, asks for what is new in the data "
        "and tries again the calls that failed; the exit code is 1 where some are left.",
    )
    add_files(
        data,
        'JSONL rows {"instruction": ..., "output": ...}, and where there are: input, evidence, '
        "preceding_sentences, target_output",
        out="labels to be written, in JSONL",
    )
    data.add_argument(
        "--model",
        required=True,
        metavar="MODULE:ATTRIBUTE|PROVIDER:MODEL",
        help="a LangChain model of your own, or one that langchain knows, such as openai:gpt-4o",
    )
    data.add_argument(
        "--prompts",
        nargs="+",
        choices=list(CRITIQUE_PROMPTS),
        default=list(CRITIQUE_PROMPTS),
        metavar="PROMPT",
        help="prompts of the paper (tables 8 to 12) to ask: %(choices)s; default: all",
    )
    data.add_argument(
        "--max-samples",
        type=count,
        metavar="REQUESTS",
        help="most requests of each prompt; default: all",
    )
    add_settings(data, CriticDataSettings)
    add_calls(data)
    add_ray_options(data, "processes that hold the models")
    add_calls_of_actor(data)
    data.set_defaults(run=run_critic_data)
    critic = kinds.add_parser(
        "critic",
        help="Self-RAG's critic, from such data",
        description="Fine-tune a causal language model or a T5 to give reflection tokens. The same "
        "command goes on after a kill.",
    )
    add_files(critic, "what critic-data wrote", folder=True)
    add_settings(critic, CriticSettings)
    add_run_options(critic)
    critic.set_defaults(run=run_critic)


def run_critic_data(args: argparse.Namespace) -> int:
    """Show what labelling costs, label, and print how it came out."""
    check_ray_options(args, "batch_size")
    settings = settings_from(args, CriticDataSettings)
    tell(as_json(dataclasses.asdict(settings)))
    instances = read_instances(args.data)
    labelling = critic_labelling(
        instances, args.out, settings, prompts=args.prompts, max_samples=args.max_samples
    )
    calls, tokens = labelling.cost()
    tell(
        f"{calls:,} calls: about {tokens:,} tokens in, at most {calls * settings.max_tokens:,} "
        "out, and more where an answer is malformed",
    )
    if args.estimate:
        return 0
    make = partial(
        find_language_model,
        args.model,
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
    )
    with (
        opened_model(args, make) as model,
        require("tqdm", "train").tqdm(total=calls, desc="labels", unit="", file=sys.stderr) as bar,
    ):
        report = labelling.run(model, max_concurrency=args.max_concurrency, on_done=bar.update)
    counts = token_counts(read_critic_rows(args.out))
    tell(as_json({**dataclasses.asdict(report), "tokens": counts}, indent=2))
    tell(f"the labels are in {args.out}, what failed in {labelling.failures.path}")
    return int(any(outcomes["failed"] for outcomes in report.outcomes.values()))


def run_critic(args: argparse.Namespace) -> int:
    """Fine-tune a critic and print how often it agrees with its teacher."""
    settings = settings_from(args, CriticSettings)
    if is_first():
        tell(as_json(dataclasses.asdict(settings)))
    report = train_critic(read_critic_rows(args.data), args.out, settings, run_options_from(args))
    if is_first():
        tell(as_json({"rows": report["rows"], "shortened": report["shortened"]}))
        tell("\n".join(_in_words(report["test"])))
        tell(f"the critic is in {args.out / 'critic'}, its report in {args.out / 'report.json'}")
    return 0


def _in_words(test: dict[str, Any]) -> list[str]:
    """The paper's figure 5, and below it what was taken for what."""
    lines = agreement_in_words(test, ("test questions", "commonest token"))
    for group, confusion in test["confusion"].items():
        lines += ["", f"{group}: the teacher's token, and how often the critic gave each"]
        lines += [
            f"  {token:<28}" + ", ".join(f"{often} {given}" for given, often in counts.items())
            for token, counts in confusion.items()
        ]
    return lines
