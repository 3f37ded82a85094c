"""``selfcorrect-rag settings``: what a configuration file and --set take."""

import click

from selfcorrect_rag.cli.options import GraphName
from selfcorrect_rag.cli.terminal import tell
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.settings import GRAPHS


@click.command()
@click.argument("graph", type=GraphName(), required=False)
def settings_command(graph: str | None) -> None:
    """List the fields of a configuration, or the settings of GRAPH, with their defaults."""
    kind = GRAPHS[graph] if graph else ServingConfig
    for name, field in kind.model_fields.items():
        default = "none" if field.default in (None, "", (), {}) else str(field.default)
        tell(f"{name} = {default}", bold=True)
        tell(f"    {' '.join((field.description or '').split())}")
    if not graph:
        names = "|".join(GraphName().choices)
        tell(f"\nSettings of a graph: selfcorrect-rag settings {names}")
