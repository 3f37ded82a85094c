"""``selfcorrect-rag ui``: a local page to ask, to watch, and to weigh differently."""

import argparse
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

from selfcorrect_rag.commands.names import check_names
from selfcorrect_rag.commands.terminal import tell
from selfcorrect_rag.errors import require
from selfcorrect_rag.serving.config import NO_INDEX, BadOption, ServingConfig
from selfcorrect_rag.serving.hosts import known_names
from selfcorrect_rag.serving.options import (
    add_host_options,
    add_options,
    config_from,
    shown_default,
)

RUNS = Path(".selfcorrect/runs.sqlite")
"""Where past runs are kept."""


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register ``ui``."""
    parser = add(
        usage="%(prog)s [options]",
        description="Serve a local page: ask any graph, watch it, weigh its result differently, "
        "compare and keep runs. Nothing is fetched from elsewhere.",
        examples=(
            "selfcorrect-rag ui",
            "selfcorrect-rag ui --index .selfcorrect/index --index notes-index --web tavily",
            "selfcorrect-rag ui --port 8080 --no-open --engine chat --model openai:gpt-4o-mini",
        ),
    )
    add_host_options(parser, port=8765)
    parser.add_argument(
        "--open",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="Open the page in a browser. Default: on in a terminal.",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        default=RUNS,
        metavar="FILE",
        help="The SQLite file of past runs. Default: %(default)s.",
    )
    field = ServingConfig.model_fields["index"]
    parser.add_argument(
        "--index",
        type=Path,
        action="append",
        default=[],
        dest="indexes",
        metavar="DIR",
        help=f"{field.description} The first one is asked unless the page says another; may be "
        f"repeated. Default: {shown_default(field)}.",
    )
    add_options(parser, [name for name in ServingConfig.model_fields if name != "index"])
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM.

    Raises:
        MissingExtra: Starlette or uvicorn is not installed.
        BadOption: a value does not do, the port is taken, or it would listen to other machines by
            no name.
    """
    args.index = next(iter(args.indexes), None)
    config = config_from(args)
    names = known_names(args.host, args.allow_host)
    check_names(config)
    for other in args.indexes:
        check_names(config.model_copy(update={"index": other}))
    require("starlette", "ui")
    require("uvicorn", "ui")
    from selfcorrect_rag.ui.server import Server
    from selfcorrect_rag.ui.store import RunStore

    server = Server(config, args.indexes, RunStore(args.runs), names)
    listening = _listen(args.host, args.port)
    port = listening.getsockname()[1]
    host = f"[{args.host}]" if ":" in args.host else args.host
    address = f"http://{host}:{port}/"
    tell(f"{address}  (Ctrl-C ends it)")
    if config.reads_demo:
        tell(NO_INDEX, sys.stderr)
    if sys.stdout.isatty() if args.open is None else args.open:
        threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
    server.answer(listening)
    return 0


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(2048)  # who calls as soon as the address is printed waits, and is answered
    except (OSError, OverflowError) as error:
        listening.close()
        raise BadOption(f"--host {host} --port {port}: {error}") from error
    return listening
