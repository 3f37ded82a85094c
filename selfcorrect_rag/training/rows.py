"""Reads files of training rows, and splits their questions into parts."""

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from selfcorrect_rag.errors import BadTrainingData

Part = Literal["train", "development", "test"]


def part_of(question: str) -> Part:
    """Which part of the data a question belongs to: by its words, so that the same question always
    goes the same way (seven tenths, one, two)."""
    bucket = zlib.crc32(" ".join(question.lower().split()).encode(errors="replace")) % 10
    return "test" if bucket < 2 else "development" if bucket == 2 else "train"


_NEXT = re.compile(r"[^\s,]")


def read_text(path: Path) -> str:
    """The text of a file of training data.

    Raises:
        BadTrainingData: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTrainingData(f"cannot read {path}: {error}") from error


def lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are not blank, numbered from 1.

    JSON may hold what `str.splitlines` takes for the end of a line, such as U+2028.
    """
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line


def read_rows(path: Path) -> Iterator[tuple[str, Any]]:
    """The JSON values of a file, one a line or in one list, each with its place in words.

    Raises:
        BadTrainingData: the file cannot be read, or is not so; the message names the line.
    """
    text = read_text(path)
    if text.lstrip().startswith("["):
        yield from _listed(path, text)
        return
    for number, line in lines(text):
        try:
            yield f"{path}:{number}", json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadTrainingData(f"{path}:{number}: not JSON ({error})") from error


def _listed(path: Path, text: str) -> Iterator[tuple[str, Any]]:
    """The rows of one JSON list, each with the line that it begins on."""
    decoder, number, position = json.JSONDecoder(), 0, text.index("[") + 1
    line = 1 + text.count("\n", 0, position)
    while found := _NEXT.search(text, position):
        line += text.count("\n", position, found.start())
        if found.group() == "]":
            return
        number += 1
        try:
            row, position = decoder.raw_decode(text, found.start())
        except (ValueError, RecursionError) as error:
            raise BadTrainingData(f"{path}:{line}: row {number} is not JSON ({error})") from error
        yield f"{path}:{line}: row {number}", row
        line += text.count("\n", found.start(), position)
    raise BadTrainingData(f"{path}: the list of rows does not end")
