"""Options that several commands share, and the configuration that they give."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click
from pydantic import BaseModel

from selfcorrect_rag.serving.config import (
    BadOption,
    ServingConfig,
    parse_value,
    read_config,
    setting_names,
)
from selfcorrect_rag.settings import GRAPHS

Command = TypeVar("Command", bound=Callable[..., Any])
GRAPH_NAMES = [name.replace("_", "-") for name in GRAPHS]
NO_INDEX = (
    "no index was named and there is none here: the demo's documents are read; "
    "selfcorrect-rag index PATH... makes one of yours"
)


def graph_option(function: Command) -> Command:
    """Add ``--graph``, passed as the graph's name in Python."""

    def name(ctx: click.Context, param: click.Parameter, value: str) -> str:
        return value.replace("-", "_")

    choice = click.Choice(GRAPH_NAMES)
    return click.option(
        "--graph",
        type=choice,
        default="self-rag",
        show_default=True,
        callback=name,
        help="The graph that answers.",
    )(function)


def config_options(function: Command) -> Command:
    """Add the options of a configuration; the command gets them as keyword arguments, for
    :func:`config_from`."""
    options = [
        click.option("--index", type=Path, metavar="DIR", help="An index of `index`."),
        click.option(
            "--model",
            metavar="NAME",
            help="What answers: PROVIDER:MODEL, a checkpoint with reflection tokens, or "
            "MODULE:ATTRIBUTE.  [default: the embedded reader]",
        ),
        click.option(
            "--evaluator", metavar="NAME", help="What grades documents: a T5, or a chat model."
        ),
        click.option(
            "--web", metavar="tavily|none|DIR", help="What CRAG searches beside the index."
        ),
        click.option(
            "--set",
            "sets",
            multiple=True,
            metavar="KEY=VALUE",
            help="Any setting; `selfcorrect-rag settings` lists them. May be repeated.",
        ),
        click.option(
            "--config", type=Path, metavar="FILE.toml", help="A file of options and settings."
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def host_options(port: int) -> Callable[[Command], Command]:
    """Add ``--host``, ``--port`` and ``--allow-host`` of a server that listens at ``port``."""

    def add(function: Command) -> Command:
        for option in (
            click.option(
                "--allow-host",
                multiple=True,
                metavar="NAME",
                help="A name by which others may call the server, and whose pages may.",
            ),
            click.option("--port", default=port, show_default=True, help="Its port."),
            click.option(
                "--host", default="127.0.0.1", show_default=True, help="Where the server listens."
            ),
        ):
            function = option(function)
        return function

    return add


def config_from(
    sets: tuple[str, ...], config: Path | None, graph: str | None = None, **fields: Any
) -> ServingConfig:
    """Return the configuration of a file, overridden by options, overridden by ``--set``.

    Args:
        sets: items KEY=VALUE.
        config: a TOML file.
        graph: the only graph that runs: settings of others are refused.
        fields: options by the names of the configuration's fields; None is not given.

    Raises:
        BadOption: a key or a value is invalid.
    """
    given = read_config(config) if config else {}
    given |= {name: value for name, value in fields.items() if value is not None}
    for name, value in parse_sets(sets).items():
        if graph and name in setting_names() and name not in GRAPHS[graph].model_fields:
            owners = [
                g.replace("_", "-") for g, kind in GRAPHS.items() if name in kind.model_fields
            ]
            raise BadOption(f"--set {name}: a setting of {', '.join(owners)}, not of {graph}")
        given[name] = value
    return ServingConfig(**given)


def parse_sets(sets: Iterable[str], *kinds: type[BaseModel]) -> dict[str, Any]:
    """Parse items KEY=VALUE, as :func:`~selfcorrect_rag.serving.config.parse_value` does.

    Raises:
        BadOption: an item has no ``=``, no key is called so, or a value is invalid.
    """
    return {name: parse_value(name, text, *kinds) for name, text in map(_split, sets)}


def divide_sets(
    sets: Iterable[str], kind: type[BaseModel]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Parse the items KEY=VALUE that are fields of ``kind``, and return the other items."""
    own = [item for item in sets if _split(item)[0] in kind.model_fields]
    return parse_sets(own, kind), tuple(item for item in sets if item not in own)


def _split(item: str) -> tuple[str, str]:
    name, equals, text = item.partition("=")
    if not equals:
        raise BadOption(f"--set takes KEY=VALUE, got {item!r}")
    return name.strip().replace("-", "_"), text
