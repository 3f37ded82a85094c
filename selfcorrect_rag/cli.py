"""The command ``selfcorrect-rag``."""

import argparse
import io
import sys
from collections.abc import Sequence
from importlib.metadata import version

from selfcorrect_rag.commands import ask, calibrate, demo, evaluate, index, mcp, studio, train
from selfcorrect_rag.commands.terminal import Parser, shown_line, tell
from selfcorrect_rag.errors import SelfCorrectError


def parser() -> argparse.ArgumentParser:
    """The whole command line, one subcommand a module of :mod:`selfcorrect_rag.commands`."""
    root = Parser(
        prog="selfcorrect-rag",
        description="Self-RAG and CRAG as LangGraph graphs: index documents, ask questions, see "
        "why, train what they need.",
    )
    root.add_argument("--version", action="version", version=version("selfcorrect-rag"))
    subparsers = root.add_subparsers(required=True, metavar="COMMAND")
    for command in (ask, index, demo, studio, mcp, train, calibrate, evaluate):
        command.add_parser(subparsers)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what a user can mend is one line on standard error and exit status 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what it cannot encode is shown by its code
            stream.reconfigure(errors="backslashreplace")
    args = parser().parse_args(arguments)
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
