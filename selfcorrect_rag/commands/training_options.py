"""Command-line options of ``train``, made from the settings classes of the trainings."""

import argparse
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.training.fine_tuning import RunOptions

Settings = TypeVar("Settings")


def add_files(
    parser: argparse.ArgumentParser, data: str, *, out: str = "", folder: bool = False
) -> None:
    """Add ``--data`` and ``--out``, each with its help; ``out`` is a file or a ``folder``."""
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help=data)
    if folder:
        out = "folder of the result, its report and its checkpoints; an earlier run there goes on"
    kind = "DIR" if folder else "FILE"
    parser.add_argument("--out", type=Path, required=True, metavar=kind, help=out)


def add_calls(parser: argparse.ArgumentParser, calls: str = "calls of the model") -> None:
    """Add the option that limits concurrent ``calls``, and the one that only estimates them."""
    parser.add_argument(
        "--max-concurrency",
        type=count,
        default=8,
        metavar="CALLS",
        help=f"most {calls} at a time; default: %(default)s",
    )
    parser.add_argument(
        "--estimate", action="store_true", help="print what it would cost, and call nothing"
    )


def add_settings(parser: argparse.ArgumentParser, kind: type[Any]) -> None:
    """Add an option for each field of a settings class that has a help and a default."""
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING and _about(kind, field.name):
            shown = "" if field.default is None else f"default: {_shown(field.default)}"
            _add(parser, kind, field, field.default, shown)


def add_presets(parser: argparse.ArgumentParser, presets: Mapping[str, Any]) -> None:
    """Add ``--preset``, the first one by default, and an option for each setting it decides."""
    first, settings = next(iter(presets.items()))
    parser.add_argument(
        "--preset",
        choices=list(presets),
        default=first,
        help="values of all options that are not given; default: %(default)s",
    )
    for field in dataclasses.fields(settings):
        names: dict[str, list[str]] = {}
        for name, preset in presets.items():
            names.setdefault(_shown(getattr(preset, field.name)), []).append(name)
        values = ", ".join(f"{value} ({', '.join(of)})" for value, of in names.items())
        values = next(iter(names)) if len(names) == 1 < len(presets) else values
        _add(parser, type(settings), field, None, f"default: {values}")


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that do not change the result."""
    add_settings(parser, RunOptions)


def refuse_own_data(args: argparse.Namespace) -> None:
    """Let no output overwrite the data that it is made from.

    Raises:
        BadTrainingData: ``--out`` is ``--data``.
    """
    if args.out.exists() and args.data.exists() and args.out.samefile(args.data):
        raise BadTrainingData(f"{args.out} is the data: give --out another place")


def settings_from(args: argparse.Namespace, kind: type[Settings]) -> Settings:
    """The settings that the options give; an option has the name of its field."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return kind(**{field.name: getattr(args, field.name) for field in fields})


def preset_from(args: argparse.Namespace, presets: Mapping[str, Any]) -> Any:
    """The preset's settings, overridden by the options that are given."""
    preset = presets[args.preset]
    given = {field.name: getattr(args, field.name) for field in dataclasses.fields(preset)}
    return dataclasses.replace(preset, **{k: v for k, v in given.items() if v is not None})


def run_options_from(args: argparse.Namespace) -> RunOptions:
    """The options of :func:`add_run_options`."""
    return dataclasses.replace(settings_from(args, RunOptions), report_to=tuple(args.report_to))


def count(text: str) -> int:
    """A whole number from 1; for argparse, which names the option that is given another."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _about(kind: type[Any], name: str) -> Mapping[str, Any]:
    """Metadata of a field, or of the base class's field that it overrides."""
    fields = (c.__dataclass_fields__.get(name) for c in kind.__mro__ if dataclasses.is_dataclass(c))
    return next((field.metadata for field in fields if field and field.metadata), {})


def _add(
    parser: argparse.ArgumentParser,
    kind: type[Any],
    field: "dataclasses.Field[Any]",
    default: Any,
    shown: str,
) -> None:
    about = _about(kind, field.name)
    meaning = f"{about['help']}; {shown}" if shown else about["help"]
    options: dict[str, Any] = {"default": default, "help": meaning}
    hint = get_type_hints(kind)[field.name]
    if hint is bool:
        options["action"] = argparse.BooleanOptionalAction
    elif get_origin(hint) is Literal:
        options["choices"] = get_args(hint)
    else:
        options["metavar"] = about["unit"]
        if get_origin(hint) is tuple:
            options["nargs"] = "+"
        elif about["positive"]:
            options["type"] = count
        else:
            options["type"] = next((a for a in get_args(hint) if a is not type(None)), hint)
    parser.add_argument(f"--{field.name.replace('_', '-')}", **options)
