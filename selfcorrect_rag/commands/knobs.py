"""The knobs of a run as command-line options, read off their settings class."""

import argparse
import types
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from selfcorrect_rag.errors import SelfCorrectError

Settings = TypeVar("Settings", bound=BaseModel)


class BadKnob(SelfCorrectError, ValueError):
    """An option outside its bounds."""


def add_knobs(parser: argparse.ArgumentParser, settings: type[BaseModel]) -> None:
    """Add one option for each field of ``settings``, with its own description and default."""
    group = parser.add_argument_group("the run's knobs")
    for name, field in settings.model_fields.items():
        group.add_argument(
            _option(name),
            dest=name,
            default=argparse.SUPPRESS,
            help=f"{field.description} Default: {_shown(field.default)}.".replace("%", "%%"),
            **_form(field),
        )


def settings_from(args: argparse.Namespace, settings: type[Settings]) -> Settings:
    """The settings that the options give.

    Raises:
        BadKnob: a value is outside its bounds; the message names option and bound.
    """
    given = {name: getattr(args, name) for name in settings.model_fields if hasattr(args, name)}
    try:
        return settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        option = f"{_option(str(first['loc'][0]))}: " if first["loc"] else ""
        raise BadKnob(f"{option}{first['msg']}") from error


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _shown(default: Any) -> str:
    return "none" if default is None or default == () else str(default).lower()


def _form(field: FieldInfo) -> dict[str, Any]:
    """How argparse should read a field of this type."""
    annotation: Any = field.annotation
    optional = get_origin(annotation) in (Union, types.UnionType)
    if optional:
        annotation = next(a for a in get_args(annotation) if a is not type(None))
    if annotation is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(annotation) is Literal:
        return {"choices": get_args(annotation)}
    if get_origin(annotation) is tuple:
        return {"nargs": "+", "metavar": "TEXT"}
    metavar = {int: "N", float: "X"}.get(annotation, "TEXT")
    return {"type": _or_none(annotation) if optional else annotation, "metavar": metavar}


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        return None if text.lower() == "none" else read(text)

    parse.__name__ = f"{read.__name__} or none"  # what argparse calls it in an error
    return parse
