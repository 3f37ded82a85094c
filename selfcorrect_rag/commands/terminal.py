"""The output of commands: nothing in it controls a terminal, whoever wrote the text.

Escape sequences, C1 controls and direction marks in titles, passages, answers, file names and error
messages are shown by their codes, also in pipes and files, which may be shown later. In JSON these
codes are ordinary escapes. Readable letters of any script are unchanged.
"""

import argparse
import json
import sys
import unicodedata
from collections.abc import Callable
from typing import Any, NoReturn, TextIO

from selfcorrect_rag.errors.messages import JOINERS


def tell(text: object, file: TextIO | None = None) -> None:
    """Print lines, by default to standard output at once."""
    lines = (shown_line(line) for line in str(text).split("\n"))
    print("\n".join(lines), file=file or sys.stdout, flush=True)


def shown_line(text: str) -> str:
    """A line with control characters shown by their codes."""
    return _with_codes(text, lambda letter: ascii(letter)[1:-1])


def as_json(value: Any, **options: Any) -> str:
    """``value`` as JSON; options are those of `json.dumps`."""
    # A code that the output itself writes for a letter it cannot encode would be no JSON.
    unicode = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    lines = json.dumps(value, ensure_ascii=not unicode, **options).split("\n")
    return "\n".join(_with_codes(line, lambda letter: json.dumps(letter)[1:-1]) for line in lines)


class Parser(argparse.ArgumentParser):
    """A parser whose error messages are safe for a terminal."""

    def error(self, message: str) -> NoReturn:
        super().error(shown_line(message))


def _with_codes(text: str, code: Callable[[str], str]) -> str:
    return "".join(
        letter
        if letter.isprintable() or letter in JOINERS or unicodedata.category(letter) == "Zs"
        else code(letter)
        for letter in text
    )
