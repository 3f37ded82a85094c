"""``selfcorrect-rag train generator`` and ``train instruct``: the papers' two fine-tuned models."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from selfcorrect_rag.commands.terminal import as_json, tell
from selfcorrect_rag.commands.training_options import (
    add_files,
    add_presets,
    add_run_options,
    preset_from,
    run_options_from,
)
from selfcorrect_rag.demo import generator_path
from selfcorrect_rag.training import generator, instruct
from selfcorrect_rag.training.agreement import agreement_in_words
from selfcorrect_rag.training.fine_tuning import is_first
from selfcorrect_rag.training.generator_rows import read_generator_rows
from selfcorrect_rag.training.instruct import read_instruct_rows

PRESETS = {
    **generator.PRESETS,
    "nano": dataclasses.replace(generator.PRESETS["nano"], model=str(generator_path())),
}
"""The presets, where ``nano`` begins from the generator of this package."""


def add_parsers(kinds: Any) -> None:
    """Register the two kinds of training."""
    made = kinds.add_parser(
        "generator",
        help="Self-RAG's generator, from outputs with reflection tokens",
        description="Fine-tune a causal language model to retrieve, write and criticise. The same "
        "command goes on after a kill.",
    )
    add_files(
        made,
        'JSONL or JSON rows {"instruction": ..., "output": ...}, and where there is: input',
        folder=True,
    )
    add_presets(made, PRESETS)
    add_run_options(made)
    made.set_defaults(run=run_generator)
    taught = kinds.add_parser(
        "instruct",
        help="INSTRUCTRAG-FT, from rationales",
        description="Fine-tune a causal language model to answer with rationales. The same command "
        "goes on after a kill.",
    )
    add_files(taught, "what rationales wrote", folder=True)
    add_presets(taught, instruct.PRESETS)
    add_run_options(taught)
    taught.set_defaults(run=run_instruct)


def run_generator(args: argparse.Namespace) -> int:
    """Fine-tune a generator and print what it makes of rows held out."""
    settings, run_options = preset_from(args, PRESETS), run_options_from(args)
    _show(settings, run_options)
    report = generator.train_generator(
        read_generator_rows(args.data), args.out, settings, run_options
    )
    if is_first():
        held_out = report["held_out"]
        tell(as_json({name: report[name] for name in ("rows", "tokens")}))
        losses = {
            kind: f"{loss:.3f}" for kind, loss in held_out["loss"].items() if loss is not None
        }
        shown = ", ".join(f"{kind} {loss}" for kind, loss in losses.items()) or "-"
        tell(f"held-out loss of a token: {shown}")
        tell("\n".join(agreement_in_words(held_out, ("held-out tokens", "commonest token"))))
        tell(f"the generator is in {args.out / 'generator'}, its report in {_report(args)}")
    return 0


def run_instruct(args: argparse.Namespace) -> int:
    """Fine-tune a model on rationales and print its loss on rows held out."""
    settings, run_options = preset_from(args, instruct.PRESETS), run_options_from(args)
    _show(settings, run_options)
    report = instruct.train_instruct(read_instruct_rows(args.data), args.out, settings, run_options)
    if is_first():
        tell(as_json(report))
        tell(f"the model is in {args.out / 'model'}, its report in {_report(args)}")
    return 0


def _show(settings: Any, run_options: Any) -> None:
    if is_first():
        tell(as_json(dataclasses.asdict(settings) | dataclasses.asdict(run_options)))


def _report(args: argparse.Namespace) -> Path:
    path: Path = args.out / "report.json"
    return path
