"""``selfcorrect-rag ui``, ``mcp`` and ``studio``: servers on this machine."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from selfcorrect_rag.cli.options import CONFIG, NO_INDEX, config_from, host_options
from selfcorrect_rag.cli.terminal import tell

RUNS = ".selfcorrect/runs.sqlite"
MAX_RUNS = "10"
"""Runs at a time: a graph that waits for another on the same server must not block it."""


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


@click.command(params=[*CONFIG, *host_options(port=8900)])
@click.option("--http", is_flag=True, help="Streamable HTTP instead of stdio.")
def mcp_command(
    http: bool, host: str, port: int, allow_host: tuple[str, ...], **options: Any
) -> None:
    """Serve the graphs as MCP tools, over stdio or streamable HTTP, until the client goes away."""
    from selfcorrect_rag.errors import require

    require("mcp.server.mcpserver", "mcp")
    from selfcorrect_rag.serving import mcp_server
    from selfcorrect_rag.serving.parts import Parts, build_once

    config = config_from(**options)
    security = mcp_server.transport_security(host, allow_host)
    with Parts(config) as parts:
        server = mcp_server.server(
            build_once(parts.graph),
            f"Answers come from {parts.source}, by {parts.answers}. A question must stand alone. "
            "The marks [n] of an answer are its citations: keep them. Each citation has the "
            "address of a resource with its text.",
        )
        if http:
            server.run("streamable-http", transport_security=security, host=host, port=port)
        else:
            server.run("stdio")


@click.command(
    params=[*CONFIG, *host_options(port=2024)], context_settings={"ignore_unknown_options": True}
)
@click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[-- OPTION ...]")
def studio_command(
    host: str, port: int, allow_host: tuple[str, ...], rest: tuple[str, ...], **options: Any
) -> None:
    """Serve the graphs to LangGraph Studio and to clients.

    The server runs on this machine; Studio's page is hosted by LangChain, and your browser opens it
    there. What follows -- goes to `langgraph dev`, such as --no-browser.
    """
    from selfcorrect_rag.errors import require
    from selfcorrect_rag.serving.hosts import ALLOWED_HOSTS, host_names

    require("langgraph_cli", "studio")
    require("langgraph_api", "studio")
    if any(option.partition("=")[0] in ("--host", "--tunnel") for option in rest):
        raise click.UsageError("--host stands before --; a tunnel opens the server to anybody")
    config = config_from(**options)
    names = host_names(host, allow_host)
    folder = private_folder()
    variables = config.located().as_environment()
    if any(":" in (name or "") for name in (config.retriever, config.model, config.chat_model)):
        variables["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.getenv("PYTHONPATH", "")])
    variables |= {ALLOWED_HOSTS: " ".join(names), "LANGGRAPH_CLI_NO_ANALYTICS": "1"}
    arguments = [sys.executable, "-m", "langgraph_cli", "dev", "--no-reload", "--host", host]
    arguments += ["--port", str(port), "--n-jobs-per-worker", MAX_RUNS]
    os.chdir(folder)
    os.execve(sys.executable, [*arguments, *rest], {**os.environ, **variables})


def private_folder() -> Path:
    """Copy graphs/ and langgraph.json to a folder that only the user can write, and return it.

    The server loads pickled threads from the folder in which it runs, so it must not run in one
    that came from elsewhere.
    """
    import selfcorrect_rag

    package = Path(selfcorrect_rag.__file__).parent
    installed = package / "studio"  # in the wheel; in a checkout beside the package
    source = installed if installed.is_dir() else package.parent
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    folder = state / "selfcorrect-rag" / "studio"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    shutil.copy(source / "langgraph.json", folder)
    shutil.copytree(source / "graphs", folder / "graphs", dirs_exist_ok=True)
    return folder
