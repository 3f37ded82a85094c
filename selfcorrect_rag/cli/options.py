"""Options that several commands share, and the configuration that they give."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from selfcorrect_rag.serving.config import BadOption, ServingConfig, parse_value, read_config
from selfcorrect_rag.settings import GRAPHS, CRAGSettings

NAMES = "PROVIDER:MODEL, a checkpoint, or MODULE:ATTRIBUTE.  [default: the embedded reader]"
NO_INDEX = (
    "no index was named and there is none here: the demo's documents are read; "
    "selfcorrect-rag index PATH... makes one of yours"
)


class GraphName(click.Choice[str]):
    """The name of a graph, with hyphens or underscores; commands get it as settings name it."""

    def __init__(self) -> None:
        super().__init__([name.replace("_", "-") for name in GRAPHS])

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        return super().convert(value.replace("_", "-"), param, ctx).replace("-", "_")


GRAPH = click.Option(
    ["--graph"], type=GraphName(), default="self-rag", show_default=True, help="The graph."
)
SET = click.Option(
    ["--set", "sets"],
    multiple=True,
    metavar="KEY=VALUE",
    help="Any setting (`selfcorrect-rag settings` lists them); may be repeated.",
)
FILE = click.Option(["--config"], type=Path, metavar="FILE.toml", help="Options and settings.")
JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print all of it as JSON.")
CONFIG = [
    click.Option(["--index"], type=Path, metavar="DIR", help="An index of `index`."),
    click.Option(["--model"], metavar="NAME", help=f"What answers: {NAMES}"),
    click.Option(
        ["--engine"], metavar="transformers|vllm|server|chat", help="What runs the model."
    ),
    click.Option(["--reader"], type=Path, metavar="DIR", help="A reader of `make reader`."),
    click.Option(["--evaluator"], metavar="NAME", help=f"What grades documents: {NAMES}"),
    click.Option(["--web"], metavar="tavily|none|DIR", help="The web search of CRAG."),
    *(SET, FILE),
]
"""Options of a configuration; the command gives them to :func:`config_from`."""


def host_options(port: int) -> list[click.Parameter]:
    """Return ``--host``, ``--port`` and ``--allow-host`` of a server that listens at ``port``."""
    names = "A name by which others may call the server, and whose pages may."
    return [
        click.Option(["--host"], default="127.0.0.1", show_default=True, help="Where it listens."),
        click.Option(["--port"], default=port, show_default=True, help="Its port."),
        click.Option(["--allow-host"], multiple=True, metavar="NAME", help=names),
    ]


def config_from(
    sets: Iterable[str], config: Path | None, graph: str | None = None, **fields: Any
) -> ServingConfig:
    """Return the configuration of a TOML file, overridden by options, overridden by ``--set``.

    If only ``graph`` runs, BadOption refuses settings of others, and a web search that it does not
    make. ``fields`` are options by the names of the configuration's fields; None is not given.
    """
    given = read_config(config) if config else {}
    given |= {name: value for name, value in fields.items() if value is not None}
    if graph and fields["web"] and not issubclass(GRAPHS[graph], CRAGSettings):
        graph = graph.replace("_", "-")
        raise BadOption(f"--web: {graph} never searches the web; take --graph crag or self-crag")
    for name, value in parse_sets(sets).items():
        owners = [each for each in GRAPHS if name in GRAPHS[each].model_fields]
        if graph and owners and graph not in owners:
            known = ", ".join(owners).replace("_", "-")
            raise BadOption(f"--set {name}: a setting of {known}, not of {graph}")
        given[name] = value
    return ServingConfig(**given)


def parse_sets(sets: Iterable[str], *kinds: type[BaseModel]) -> dict[str, Any]:
    """Parse items KEY=VALUE, as :func:`~selfcorrect_rag.serving.config.parse_value` does; BadOption
    if an item has no ``=`` too."""
    parsed = {}
    for item in sets:
        name, equals, text = item.partition("=")
        if not equals:
            raise BadOption(f"--set takes KEY=VALUE, got {item!r}")
        name = name.strip().replace("-", "_")
        parsed[name] = parse_value(name, text, *kinds)
    return parsed
