"""``selfcorrect-rag ui``: a local page to ask, watch and weigh."""

import threading
import webbrowser
from pathlib import Path
from typing import Any

import click

from selfcorrect_rag.cli.options import NO_INDEX, config_from, config_options, host_options
from selfcorrect_rag.cli.terminal import tell


@click.command()
@config_options
@host_options(port=8765)
@click.option("--open/--no-open", "opens", default=False, help="Open the page in a browser.")
@click.option(
    "--runs",
    type=Path,
    default=Path(".selfcorrect/runs.sqlite"),
    show_default=True,
    help="The SQLite file of past runs.",
)
def command(
    host: str, port: int, allow_host: tuple[str, ...], opens: bool, runs: Path, **options: Any
) -> None:
    """Serve a local page until Ctrl-C: ask any graph, watch it, approve its searches, see why."""
    from selfcorrect_rag.errors import require

    uvicorn = require("uvicorn", "ui")
    require("jinja2", "ui")
    from selfcorrect_rag.serving.hosts import host_names
    from selfcorrect_rag.ui.app import make_app
    from selfcorrect_rag.ui.runs import RunStore

    config = config_from(**options)
    app = make_app(config, RunStore(runs), host_names(host, allow_host))
    address = f"http://{host}:{port}/"
    tell(f"{address}  (Ctrl-C ends it)")
    if config.reads_demo:
        tell(NO_INDEX, err=True)
    if opens:
        threading.Timer(1, webbrowser.open, [address]).start()
    quiet = {"log_level": "error", "access_log": False, "server_header": False}
    uvicorn.run(app, host=host, port=port, timeout_graceful_shutdown=5, **quiet)
