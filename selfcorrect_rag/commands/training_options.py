"""The settings of a training as command-line options, read off their dataclasses."""

import argparse
import dataclasses
from collections.abc import Collection
from typing import Any, TypeVar

Settings = TypeVar("Settings")


def add_settings(
    parser: argparse.ArgumentParser, kind: type[Any], *, counts: Collection[str]
) -> None:
    """Add an option for each setting that has a default; those in ``counts`` are 1 at least."""
    for setting in dataclasses.fields(kind):
        if setting.default is not dataclasses.MISSING:
            parser.add_argument(
                f"--{setting.name.replace('_', '-')}",
                type=count if setting.name in counts else type(setting.default),
                default=setting.default,
                metavar="X",
                help="default: %(default)s",
            )


def settings_from(args: argparse.Namespace, kind: type[Settings]) -> Settings:
    """The settings that the options give: each is called as its field."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return kind(**{field.name: getattr(args, field.name) for field in fields})


def count(text: str) -> int:
    """A whole number from 1; for argparse, which names the option that is given another."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number
