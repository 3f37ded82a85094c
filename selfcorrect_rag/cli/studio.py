"""``selfcorrect-rag studio``: a LangGraph server on this machine."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from selfcorrect_rag.cli.options import CONFIG, config_from, host_options

MAX_RUNS = "10"
"""Runs at a time: a graph that waits for another on the same server must not block it."""


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
    named = (config.retriever, config.model, config.chat_model, config.evaluator)
    if any(":" in (name or "") for name in named):
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
