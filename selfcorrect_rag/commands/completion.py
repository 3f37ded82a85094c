"""``selfcorrect-rag completion``: completes commands, options and values in a shell."""

import argparse
from collections.abc import Callable
from pathlib import Path

from selfcorrect_rag.errors import require

SHELLS = ("bash", "zsh", "tcsh")


def add_parser(add: Callable[..., argparse.ArgumentParser]) -> None:
    """Register ``completion``."""
    parser = add(
        description="Print a script that completes commands, options and values in a shell.",
        examples=(
            'eval "$(selfcorrect-rag completion bash)"    # in ~/.bashrc',
            'eval "$(selfcorrect-rag completion zsh)"     # in ~/.zshrc, after compinit',
        ),
    )
    parser.add_argument("shell", choices=SHELLS, help="The shell that reads the script.")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script; every command is imported for it, once."""
    shtab = require("shtab", "demo")
    root = args.whole_parser()
    _complete_files(root, shtab.FILE)
    print(shtab.complete(root, shell=args.shell))
    return 0


def _complete_files(parser: argparse.ArgumentParser, file: object) -> None:
    """Mark the options that take files or folders, of a parser and of its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_files(command, file)
        elif action.type is Path:
            action.complete = file  # type: ignore[attr-defined]
