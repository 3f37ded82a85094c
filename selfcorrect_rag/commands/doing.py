"""What a command is doing, as a moving line on a terminal; nothing of it in pipes and files."""

import sys
from types import TracebackType
from typing import Any, Self

from selfcorrect_rag.commands.terminal import shown_line
from selfcorrect_rag.errors import require

LONGEST_TAIL = 200
"""Characters of an unfinished answer that are shown: they must fit a small terminal."""


class Doing:
    """A spinner on standard error, and what is going on; a context manager.

    Args:
        shown: False is silent. So is standard output or standard error that is no terminal.
    """

    def __init__(self, shown: bool) -> None:
        self.shown = shown and sys.stdout.isatty() and sys.stderr.isatty()
        self._status: Any = None

    def __enter__(self) -> Self:
        if self.shown:
            self._status = require("rich.console", "demo").Console(stderr=True).status("starting")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.pause()

    def say(self, what: str, written: str = "") -> None:
        """Show what is going on, and the end of what a model has ``written`` so far."""
        if self._status:
            tail = shown_line(" ".join(written.split())[-LONGEST_TAIL:])
            text = require("rich.text", "demo").Text(f"{what}  {tail}".rstrip())
            self._status.update(text)
            self._status.start()

    def pause(self) -> None:
        """Clear the line, for output or for a question; the next :meth:`say` shows it again."""
        if self._status:
            self._status.stop()
