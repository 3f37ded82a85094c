"""Output of commands: nothing in it controls a terminal, whoever wrote the text."""

import json
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click

JOINERS = "\u200c\u200d"
"""Invisible characters that some scripts need between letters."""
SECONDS_BETWEEN_LINES = 10
"""Between lines of progress, if no terminal shows a moving one."""


def printable(text: str) -> str:
    """Escape what controls a terminal or is invisible (controls, direction marks); keep lines."""
    return "".join(
        letter
        if letter.isprintable()
        or letter in JOINERS
        or letter == "\n"
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
    click.secho(printable(text), err=err, **style)


def tell_json(value: Any) -> None:
    """Print ``value`` as JSON; documents are objects of id, text and metadata."""
    from selfcorrect_rag.render.view import json_value

    click.echo(json.dumps(value, default=json_value, indent=2))


def write_page(path: Path, text: str, mark: str) -> None:
    """Write a page beside its place and move it there, private to the user.

    Args:
        mark: a text that each page of this kind holds.

    Raises:
        click.BadParameter: the file exists and lacks the mark, so that it is somebody else's; or it
            cannot be written.
    """
    try:
        if path.exists() and mark not in path.read_text(encoding="utf-8", errors="replace"):
            raise click.BadParameter(f"{path} exists and was not written by this command")
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as beside:
            beside.write(text)
        Path(beside.name).replace(path)
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}") from error


class StatusLine:
    """A moving line on a terminal that says what goes on; silent in pipes and files."""

    def __init__(self, shown: bool = True) -> None:
        self.shown = shown and sys.stdout.isatty() and sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.clear()

    def say(self, text: str) -> None:
        """Show ``text`` in place of the last one."""
        if self.shown:
            click.echo(f"\r\x1b[2K{one_row(text, 78)}", nl=False, err=True)

    def clear(self) -> None:
        """Remove the line, for other output."""
        if self.shown:
            click.echo("\r\x1b[2K", nl=False, err=True)


def progress_line() -> Callable[[str], None]:
    """Return a function that shows progress on standard error: a moving line on a terminal, else a
    line every ten seconds."""
    last = time.monotonic()

    def show(text: str) -> None:
        nonlocal last
        if sys.stderr.isatty():
            click.echo(f"\r\x1b[2K{one_row(text, 78)}", nl=False, err=True)
        elif time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            tell(text, err=True)

    return show
