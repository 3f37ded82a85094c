"""``selfcorrect-rag settings``: what ``--set`` takes."""

import click

from selfcorrect_rag.cli.options import GRAPH_NAMES
from selfcorrect_rag.cli.terminal import tell


@click.command()
@click.argument("graph", type=click.Choice(GRAPH_NAMES), required=False)
def command(graph: str | None) -> None:
    """List the fields of a configuration, or the settings of GRAPH, with their defaults."""
    from selfcorrect_rag.serving.config import ServingConfig
    from selfcorrect_rag.settings import GRAPHS

    kind = GRAPHS[graph.replace("-", "_")] if graph else ServingConfig
    for name, field in kind.model_fields.items():
        default = "none" if field.default in (None, (), {}) else str(field.default)
        tell(f"{name} = {default}", bold=True)
        tell(f"    {field.description}")
    if not graph:
        tell(f"\nSettings of a graph: selfcorrect-rag settings {'|'.join(GRAPH_NAMES)}")
