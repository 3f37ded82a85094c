"""The output of commands: nothing in it controls a terminal, whoever wrote the text.

Escape sequences, C1 controls and direction marks in titles, passages, answers, file names and error
messages are shown by their codes, also in pipes and files, which may be shown later. In JSON these
codes are ordinary escapes. Readable letters of any script are unchanged.
"""

import argparse
import difflib
import json
import sys
import time
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TextIO

from selfcorrect_rag.errors import GO_ON, JOINERS

SECONDS_BETWEEN_LINES = 10
"""Between lines of progress, where no terminal shows a moving one."""


def tell(text: object, file: TextIO | None = None) -> None:
    """Print lines, by default to standard output at once."""
    lines = (shown_line(line) for line in str(text).split("\n"))
    print("\n".join(lines), file=file or sys.stdout, flush=True)


def shown_line(text: str) -> str:
    """A line with control characters shown by their codes."""
    return _with_codes(text, lambda letter: ascii(letter)[1:-1])


def progress_lines() -> Callable[[Callable[[], str]], None]:
    """What tells a line on standard error every few seconds; a line is made only to be told."""
    told = time.monotonic()

    def show(line: Callable[[], str]) -> None:
        nonlocal told
        if time.monotonic() - told >= SECONDS_BETWEEN_LINES:
            told = time.monotonic()
            tell(shown_line(line()), sys.stderr)

    return show


def as_line(error: Exception) -> str:
    """An error's message on a line, without what only Python can do about it."""
    return shown_line(str(error).replace(GO_ON, ""))


def as_json(value: Any, **options: Any) -> str:
    """``value`` as JSON; options are those of `json.dumps`."""
    # A code that the output itself writes for a letter it cannot encode would be no JSON.
    unicode = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    lines = json.dumps(value, ensure_ascii=not unicode, **options).split("\n")
    return "\n".join(_with_codes(line, lambda letter: json.dumps(letter)[1:-1]) for line in lines)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, safe for a terminal, with the nearest right name.

    ``examples`` are whole commands, which the help ends with.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_help(self) -> str:
        """The help, with the examples as they are typed."""
        shown = "".join(f"  {line}\n" for line in self.examples)
        return super().format_help() + ("\nexamples:\n" + shown if shown else "")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Refuse what is unknown here, where the options are known, not in the main parser."""
        found, unknown = super().parse_known_args(args, namespace)
        for word in unknown:
            option = word.partition("=")[0]
            near = nearest(option, self._option_string_actions) if word.startswith("-") else ""
            self.error(f"unknown argument {option}{near or f' (see {self.prog} --help)'}")
        return found, []

    def error(self, message: str) -> NoReturn:
        said, choose, choices = message.partition(" (choose from ")
        if choose:
            near = nearest(said.split("'")[-2], [c.strip("' ") for c in choices[:-1].split(",")])
            message = f"{said}{near or choose + choices}"
        self.exit(2, f"{shown_line(f'{self.prog}: {message}')}\n")


def nearest(word: str, names: Iterable[str], likeness: float = 0.65) -> str:
    """A question after the one of ``names`` that ``word`` is nearly; empty where there is none.

    ``likeness`` is the least ratio of equal letters, 0 to 1.
    """
    found = difflib.get_close_matches(word, list(names), 1, likeness)
    return f": did you mean {found[0]}?" if found else ""


def _with_codes(text: str, code: Callable[[str], str]) -> str:
    return "".join(
        letter
        if letter.isprintable() or letter in JOINERS or unicodedata.category(letter) == "Zs"
        else code(letter)
        for letter in text
    )
