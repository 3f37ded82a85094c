"""``selfcorrect-rag ui``: the local page."""

from pathlib import Path
from typing import Any

import click

from selfcorrect_rag.cli.options import CONFIG, NO_INDEX, config_from, host_options
from selfcorrect_rag.cli.terminal import tell

RUNS = ".selfcorrect/runs.sqlite"


@click.command(params=[*CONFIG, *host_options(port=8765)])
@click.option("--runs", type=Path, default=RUNS, show_default=True, help="Past runs, in SQLite.")
def ui_command(
    host: str, port: int, allow_host: tuple[str, ...], runs: Path, **options: Any
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
    tell(f"http://{host}:{port}/  (Ctrl-C ends it)")
    if config.reads_demo:
        tell(NO_INDEX, err=True)
    quiet = {"log_level": "error", "access_log": False, "server_header": False}
    uvicorn.run(app, host=host, port=port, timeout_graceful_shutdown=5, **quiet)
