"""The settings of a training as command-line options, read off their dataclasses."""

import argparse
import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.training.fine_tuning import Running

Settings = TypeVar("Settings")


def add_files(
    parser: argparse.ArgumentParser, data: str, *, out: str | None = None, folder: bool = False
) -> None:
    """Add ``--data`` and ``--out``, each with its help; ``out`` is a file or a ``folder``."""
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help=data)
    kind = "DIR" if folder else "FILE"
    parser.add_argument("--out", type=Path, required=True, metavar=kind, help=out)


def add_calls(parser: argparse.ArgumentParser, calls: str = "calls") -> None:
    """Add what bounds the ``calls`` of a model, and what makes none."""
    parser.add_argument(
        "--concurrency",
        type=count,
        default=8,
        metavar="N",
        help=f"most {calls} at a time; default: %(default)s",
    )
    parser.add_argument(
        "--estimate", action="store_true", help="say what it would cost, and call nothing"
    )


def add_settings(
    parser: argparse.ArgumentParser, kind: type[Any], *, counts: Collection[str]
) -> None:
    """Add an option for each setting that has a default; those in ``counts`` are 1 at least."""
    for setting in dataclasses.fields(kind):
        if setting.default is not dataclasses.MISSING:
            _add(parser, kind, setting, counts, default=setting.default)


def add_presets(
    parser: argparse.ArgumentParser, presets: Mapping[str, Any], *, counts: Collection[str]
) -> None:
    """Add ``--preset``, the first one by default, and an option for each setting it decides."""
    first, settings = next(iter(presets.items()))
    parser.add_argument(
        "--preset", choices=list(presets), default=first, help="default: %(default)s"
    )
    for setting in dataclasses.fields(settings):
        _add(parser, type(settings), setting, counts, default=None)


def add_running(parser: argparse.ArgumentParser) -> None:
    """Add the options that do not decide the result."""
    running = Running()
    parser.add_argument(
        "--report-to",
        nargs="+",
        default=running.report_to,
        metavar="TRACKER",
        help="such as tensorboard or wandb, as the Trainer names them; none by default",
    )
    parser.add_argument(
        "--save-steps",
        type=count,
        default=running.save_steps,
        metavar="N",
        help="steps between checkpoints; default: %(default)s",
    )
    parser.add_argument(
        "--checkpointing", action="store_true", help="less memory for activations, more time"
    )


def refuse_own_data(args: argparse.Namespace) -> None:
    """Let no output overwrite the data that it is made from.

    Raises:
        BadTrainingData: ``--out`` is ``--data``.
    """
    if args.out.exists() and args.data.exists() and args.out.samefile(args.data):
        raise BadTrainingData(f"{args.out} is the data: give --out another place")


def settings_from(args: argparse.Namespace, kind: type[Settings]) -> Settings:
    """The settings that the options give: each is called as its field."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return kind(**{field.name: getattr(args, field.name) for field in fields})


def preset_from(args: argparse.Namespace, presets: Mapping[str, Any]) -> Any:
    """The preset's settings, and over them those that options give."""
    preset = presets[args.preset]
    given = {field.name: getattr(args, field.name) for field in dataclasses.fields(preset)}
    return dataclasses.replace(preset, **{k: v for k, v in given.items() if v is not None})


def running_from(args: argparse.Namespace) -> Running:
    """How the options of :func:`add_running` say to run."""
    return Running(tuple(args.report_to), args.save_steps, args.checkpointing)


def count(text: str) -> int:
    """A whole number from 1; for argparse, which names the option that is given another."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _add(
    parser: argparse.ArgumentParser,
    kind: type[Any],
    setting: "dataclasses.Field[Any]",
    counts: Collection[str],
    *,
    default: Any,
) -> None:
    said = "that of the preset" if default is None else "%(default)s"
    option: dict[str, Any] = {"default": default, "help": f"default: {said}"}
    hint = get_type_hints(kind)[setting.name]
    if isinstance(setting.default, bool):
        option["action"] = argparse.BooleanOptionalAction
    elif get_origin(hint) is Literal:
        option["choices"] = get_args(hint)
    else:
        option["type"] = count if setting.name in counts else type(setting.default)
        option["metavar"] = "X"
    parser.add_argument(f"--{setting.name.replace('_', '-')}", **option)
