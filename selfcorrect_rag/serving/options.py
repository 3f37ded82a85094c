"""Options of a command line made from the fields of pydantic models: the configuration, settings.

Their help says the meaning, the unit and the default, as the fields do.
"""

import argparse
import types
from collections.abc import Callable, Iterable
from typing import Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from selfcorrect_rag.serving.config import GENERATOR, ServingConfig, option_name

HARDWARE_OPTIONS = ("device", "dtype", "tensor_parallel", "engine_option")
"""The fields that say what a model of ours runs on, and how."""


def add_options(
    parser: argparse.ArgumentParser,
    names: Iterable[str] = ServingConfig.model_fields,
    *,
    grouped: bool = True,
) -> None:
    """Add the options of these fields of the configuration, under the headings of their groups."""
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for name in names:
        field = ServingConfig.model_fields[name]
        title = extra(field, "group") if grouped else ""
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        text = f"{field.description} Default: {shown_default(field)}."
        groups[title].add_argument(
            option_name(name),
            default=argparse.SUPPRESS,
            help=text.replace("%", "%%"),
            **arguments(field),
        )


def extra(field: FieldInfo, name: str) -> str:
    """The ``group``, ``shown`` or ``metavar`` of a field; empty where it has none."""
    given = field.json_schema_extra
    return str(given.get(name) or "") if isinstance(given, dict) else ""


GENERATOR_OPTIONS = [
    name for name, field in ServingConfig.model_fields.items() if extra(field, "group") == GENERATOR
]
"""The fields that say which generator answers."""


def config_from(args: argparse.Namespace) -> ServingConfig:
    """The configuration that the options give.

    Raises:
        BadOption: a value does not do, or is for another engine.
    """
    given = {name: value for name, value in vars(args).items() if value is not None}
    return ServingConfig(
        **{name: given[name] for name in ServingConfig.model_fields if name in given}
    )


def add_host_options(parser: argparse.ArgumentParser, port: int) -> None:
    """Add ``--host``, ``--allow-host`` and ``--port`` of a server that listens at ``port``."""
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="Where the server listens. Default: %(default)s, this machine alone.",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="A name by which clients may call the server, and whose pages may, beside those of "
        "this machine; needed where --host is none of this machine; may be repeated. Default: "
        "none.",
    )
    parser.add_argument(
        "--port", type=int, default=port, metavar="N", help="Its port. Default: %(default)s."
    )


def shown_default(field: FieldInfo) -> str:
    """The default of a field in words."""
    if shown := extra(field, "shown"):
        return shown
    return "none" if field.default in (None, (), {}) else str(field.default).lower()


def arguments(field: FieldInfo) -> dict[str, Any]:
    """The arguments of ``add_argument`` that read a field."""
    annotation: Any = field.annotation
    optional = get_origin(annotation) in (Union, types.UnionType)
    if optional:
        annotation = next(a for a in get_args(annotation) if a is not type(None))
    metavar = extra(field, "metavar")
    if annotation is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(annotation) is Literal:
        return {"choices": list(get_args(annotation))}
    if get_origin(annotation) is tuple:  # a field with a metavar is repeated, a setting is a list
        return {"action": "append", "metavar": metavar} if metavar else {"nargs": "+"} | _TEXT
    if get_origin(annotation) is dict:
        return {"nargs": "+", "type": _named_number, "metavar": "NAME=NUMBER"}
    if metavar:
        return {"type": annotation, "metavar": metavar}
    read = _or_none(annotation) if optional else annotation
    return {"type": read, "metavar": {int: "N", float: "NUMBER"}.get(annotation, "TEXT")}


_TEXT = {"metavar": "TEXT"}


def _named_number(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    return name, float(number)


def _or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        return None if text.lower() == "none" else read(text)

    parse.__name__ = f"{read.__name__} or none"  # what argparse calls it in an error
    return parse
