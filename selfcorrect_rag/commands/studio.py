"""``selfcorrect-rag studio``: the graphs in LangGraph Studio, from a local server."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from selfcorrect_rag.errors import require
from selfcorrect_rag.serving import hosts
from selfcorrect_rag.serving.config import BadOption
from selfcorrect_rag.serving.options import add_host_options, add_options, config_from

CONFIG = Path(hosts.__file__).with_name("langgraph.json")
RUNS = "10"
"""Runs at a time: a graph that waits for another on the same server must not stand in its way."""


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register ``studio``."""
    parser = add(
        usage="%(prog)s [options] [-- OPTION ...]",
        description="Serve the graphs to LangGraph Studio, and to clients, from this machine.",
        epilog="Whatever follows -- goes to `langgraph dev`.",
        examples=(
            "selfcorrect-rag studio",
            "selfcorrect-rag studio --index .selfcorrect/index --chat-model openai:gpt-4o-mini",
            "selfcorrect-rag studio --port 2025 --no-browser -- --debug-port 5678",
        ),
    )
    add_host_options(parser, port=2024)
    parser.add_argument(
        "--no-browser", action="store_true", help="Do not open Studio. Default: open it."
    )
    parser.add_argument("rest", nargs="*", metavar="-- OPTION", help="options of `langgraph dev`")
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Become the server.

    Raises:
        MissingExtra: the server is not installed.
        BadOption: it would listen to other machines, and by no name.
    """
    config = config_from(args)
    names = hosts.known_names(args.host, args.allow_host)
    for option in (given.partition("=")[0] for given in args.rest):
        if option == "--host":
            raise BadOption("--host stands before --")
        if option == "--tunnel" and not args.allow_host:
            raise BadOption("--tunnel opens the server to others: name its address by --allow-host")
    require("langgraph_cli", "studio")
    require("langgraph_api", "studio")
    command = [sys.executable, "-m", "langgraph_cli", "dev", "--config", str(CONFIG), "--no-reload"]
    command += ["--host", args.host, "--port", str(args.port), "--n-jobs-per-worker", RUNS]
    command += ["--no-browser"] if args.no_browser else []
    quiet = {"LANGGRAPH_CLI_NO_ANALYTICS": "1"}
    given = {**config.as_environment(), hosts.ALLOWED_HOSTS: " ".join(names)}
    os.execve(sys.executable, [*command, *args.rest], {**quiet, **os.environ, **given})
