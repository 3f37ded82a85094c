"""The command ``selfcorrect-rag``."""

import argparse
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Collection, Sequence
from functools import partial
from importlib import import_module

from selfcorrect_rag import __version__
from selfcorrect_rag.commands.doing import Doing
from selfcorrect_rag.commands.terminal import Parser, as_line, tell
from selfcorrect_rag.errors import SelfCorrectError

STARTED = time.perf_counter()
COMMANDS = {
    "ask": ("ask", "answer a question from an index"),
    "batch": ("batch", "answer many questions, here or on Ray"),
    "chat": ("chat", "keep a conversation about an index"),
    "index": ("index", "put your documents into an index"),
    "demo": ("demo", "see the graphs work, offline"),
    "ui": ("ui", "open a local page to ask, watch and weigh"),
    "studio": ("studio", "serve the graphs to LangGraph Studio and to clients"),
    "mcp": ("mcp", "serve the graphs as MCP tools"),
    "train": ("train", "fine-tune what the papers train"),
    "calibrate": ("calibrate", "choose an evaluator's thresholds"),
    "eval": ("evaluate", "compare methods on questions of your own"),
    "completion": ("completion", "print what completes these commands in a shell"),
}
"""Each command's module in :mod:`selfcorrect_rag.commands`, and what it is for."""
ASKING = {"ask", "chat"}
"""The commands that show what is going on, and have nothing to keep when they are stopped."""


def parser(commands: Collection[str]) -> argparse.ArgumentParser:
    """The command line, with the options of ``commands``; only their modules are imported."""
    root = Parser(
        prog="selfcorrect-rag",
        description="Self-RAG and CRAG as LangGraph graphs: index documents, ask questions, see "
        "why, train what they need.",
    )
    root.add_argument("--version", action="version", version=__version__)
    subparsers = root.add_subparsers(required=True, metavar="COMMAND")
    for name, (module, use) in COMMANDS.items():
        add = partial(subparsers.add_parser, name, help=use)
        if name in commands:
            import_module(f"selfcorrect_rag.commands.{module}").add_parser(add)
        else:
            add()
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; what a user can mend is one line on standard error and exit status 2."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what it cannot code is shown by its number
            stream.reconfigure(errors="backslashreplace")
    given = sys.argv[1:] if arguments is None else arguments
    started = STARTED if arguments is None else time.perf_counter()
    if arguments is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    try:
        asks = bool({*given[:1]} & ASKING)
        with Doing(asks and not {"--json", "--help", "-h"} & {*given}) as doing:
            known = argparse.Namespace(
                started=started, doing=doing, whole_parser=partial(parser, COMMANDS)
            )
            args = parser(given[:1]).parse_args(given, known)
            if not asks and signal.getsignal(signal.SIGINT) is _stop:
                signal.signal(signal.SIGINT, signal.default_int_handler)  # there is work to keep
            status: int = args.run(args)
    except SelfCorrectError as error:
        tell(f"selfcorrect-rag: {as_line(error)}", sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()  # the reader went away; there is nobody to tell
        return 141
    except KeyboardInterrupt:
        print("selfcorrect-rag: stopped", file=sys.stderr)
        return 130
    finally:
        if arguments is None:
            gc.freeze()  # at the end all memory goes: the interpreter need not look through it
    return status


def _stop(number: int, frame: object) -> None:
    """End at once: an exception would be swallowed by imports, and wait for threads."""
    os.write(2, b"\r\x1b[2K\x1b[?25h" * sys.stderr.isatty() + b"selfcorrect-rag: stopped\n")
    os._exit(130)


if __name__ == "__main__":
    sys.exit(main())
