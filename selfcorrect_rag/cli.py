"""The command ``selfcorrect-rag``."""

import argparse
import io
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module

from selfcorrect_rag import __version__
from selfcorrect_rag.commands.terminal import Parser, shown_line, tell
from selfcorrect_rag.errors import SelfCorrectError

COMMANDS = {
    "ask": ("ask", "answer a question from an index"),
    "index": ("index", "put your documents into an index"),
    "demo": ("demo", "see the graphs work, offline"),
    "studio": ("studio", "serve the graphs to LangGraph Studio and to clients"),
    "mcp": ("mcp", "serve the graphs as MCP tools"),
    "train": ("train", "fine-tune what the papers train"),
    "calibrate": ("calibrate", "choose an evaluator's thresholds"),
    "eval": ("evaluate", "compare methods on questions of your own"),
}
"""Each command's module in :mod:`selfcorrect_rag.commands`, and what it is for."""


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The command line, with the options of the command that ``arguments`` begin with.

    Only that command's module is imported, since each takes a second.
    """
    root = Parser(
        prog="selfcorrect-rag",
        description="Self-RAG and CRAG as LangGraph graphs: index documents, ask questions, see "
        "why, train what they need.",
    )
    root.add_argument("--version", action="version", version=__version__)
    subparsers = root.add_subparsers(required=True, metavar="COMMAND")
    for name, (module, use) in COMMANDS.items():
        add = partial(subparsers.add_parser, name, help=use)
        if name in arguments[:1]:
            import_module(f"selfcorrect_rag.commands.{module}").add_parser(add)
        else:
            add()
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what a user can mend is one line on standard error and exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what it cannot encode is shown by its code
            stream.reconfigure(errors="backslashreplace")
    given = sys.argv[1:] if arguments is None else arguments
    args = parser(given).parse_args(given)
    try:
        status: int = args.run(args)
    except SelfCorrectError as error:
        tell(shown_line(f"selfcorrect-rag: {error}"), sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away; there is nobody to tell
        return 141
    except KeyboardInterrupt:
        print("selfcorrect-rag: stopped", file=sys.stderr)
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
