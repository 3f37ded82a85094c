"""Output of commands: nothing in it controls a terminal, whoever wrote the text."""

import json
import sys
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

SECONDS_BETWEEN_LINES = 10
"""Between lines of progress, if no terminal shows a moving one."""


def printable(text: str) -> str:
    """Escape what controls a terminal or is invisible (controls, direction marks); keep lines."""
    return "".join(
        letter
        if letter.isprintable()
        or letter in "\n\u200c\u200d"  # joiners, which some scripts need between letters
        or unicodedata.category(letter) == "Zs"
        else ascii(letter)[1:-1]
        for letter in text
    )


def one_row(text: str, width: int) -> str:
    """Return ``text`` on one line of at most ``width`` characters."""
    row = printable(" ".join(text.split()))
    return row if len(row) <= width else row[: width - 1] + "…"


def tell(text: str = "", *, err: bool = False, **style: Any) -> None:
    """Print a text; ``style`` as in ``click.style``, for terminals only."""
    clear_line()
    click.secho(printable(text), err=err, **style)


def tell_json(value: Any) -> None:
    """Print ``value`` as JSON; documents are objects of id, text and metadata."""
    from selfcorrect_rag.ui.view import json_value

    clear_line()
    click.echo(json.dumps(value, default=json_value, indent=2))


def write_page(path: Path, text: str, mark: str) -> None:
    """Write a page beside its place and move it there, private to the user.

    Args:
        mark: a text that each page of this kind holds.

    Raises:
        click.BadParameter: the file exists and lacks the mark, so that it is somebody else's; or it
            cannot be written.
    """
    from selfcorrect_rag.journal import replace_file

    try:
        if path.exists() and mark not in path.read_text(encoding="utf-8", errors="replace"):
            raise click.BadParameter(f"{path} exists and was not written by this command")
        with replace_file(path) as draft:
            draft.touch(mode=0o600)
            draft.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror or error}") from error


def progress_line() -> Callable[[str], None]:
    """Return a function that shows progress on standard error: a moving line on a terminal, else a
    line every ten seconds."""
    last = time.monotonic()

    def show(text: str) -> None:
        nonlocal last
        if sys.stderr.isatty():
            clear_line()
            click.echo(one_row(text, 78), nl=False, err=True)
        elif time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            tell(text, err=True)

    return show


def clear_line() -> None:
    """Remove a moving line, for other output."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[2K", nl=False, err=True)
