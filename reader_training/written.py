"""Questions written by hand for training, on files of this machine, on pages of Wikipedia and on
notes: `reader_training/questions`.

A line of ``manuals.jsonl`` holds ``file``, ``question``, ``answer`` and ``near``: some words of the
sentence that answers, so that the place is found. No text of the files is copied here: they are
read where they stand, and a line whose file is not on this machine, or says it no longer, is left
out. ``wikipedia.jsonl`` has ``title`` in the place of ``file``; its pages are in ../shared/data, as
are the passages of ``retrieved.jsonl``, which were retrieved for questions of splits 0 and 1.
A line of ``notes.jsonl`` holds ``title``, ``text`` and ``asked``, pairs of question and answer: an
assistant wrote texts and questions. An empty answer: the passage around ``near`` does not say.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from reader_training.installed import Place, text_of
from reader_training.rows import (
    HELD_OUT,
    QUESTIONS,
    Row,
    Split,
    drawn,
    encyclopedia,
    lines,
    retrieved,
)

AROUND = 700
"""Characters of a passage before and behind the place that answers, and then to the line's end."""
FAR = 400
"""Most characters between an answer and the words that stand near it."""


def written_rows(folder: Path = QUESTIONS) -> Split:
    """All rows of ``folder`` whose texts are here; those of some files, pages and notes are set
    aside."""
    split = Split([], [])
    for row in _all_rows(folder):
        split[drawn(row.title, HELD_OUT)].append(row)
    return split


def _all_rows(folder: Path) -> Iterator[Row]:
    for found in lines(folder / "manuals.jsonl"):
        if text := file_text(found["file"]):
            title = re.split(r"[:/]", found["file"].removesuffix(":METADATA"))[-1]
            yield from _rows(found, re.sub(r"\..*", "", title), text, "written: manuals")
    pages = dict(encyclopedia())
    for found in lines(folder / "wikipedia.jsonl"):
        if text := pages.get(found["title"], ""):
            yield from _rows(found, found["title"], text, "written: wikipedia")
    seen = [passage for row in retrieved(0, 1) for passage in row.passages]
    for found in lines(folder / "retrieved.jsonl"):
        named = (text for title, text in seen if title == found["title"])
        if text := next((text for text in named if found["near"] in text), ""):
            yield from _rows(found, found["title"], text, "written: retrieved")
    for found in lines(folder / "notes.jsonl"):
        for question, answer in found["asked"]:
            row = {"question": question, "answer": answer, "near": answer}
            yield from _rows(row, found["title"], found["text"], "written: notes")


@cache
def file_text(file: str) -> str:
    """The text of ``package:end of a path``, ``package:METADATA`` or an absolute path; empty if it
    is not here."""
    package, _, path = file.rpartition(":")
    try:
        return text_of(Place(path, package))[0]
    except (FileNotFoundError, PackageNotFoundError, UnicodeDecodeError):
        return ""


def _rows(found: dict[str, Any], title: str, text: str, source: str) -> Iterator[Row]:
    if not found["answer"]:
        at = place(text, found["near"], found["near"]) if found["near"] else 0
        if at >= 0:
            yield Row(found["question"], title, _passage(text, at), (), source)
    elif (at := place(text, found["answer"], found["near"])) >= 0:
        passage = _passage(text, at)
        answer = " ".join(found["answer"].split())
        if answer in passage:
            yield Row(found["question"], title, passage, (answer,), source)


def place(text: str, answer: str, near: str) -> int:
    """Return the place of the answer nearest to those words; -1 if it is not there."""
    anchors = [m.start() for m in _found(near, text)]
    places = [m.start() for m in _found(answer, text)]
    pairs = [(abs(a - p), p) for a in anchors for p in places]
    distance, at = min(pairs, default=(FAR + 1, -1))
    return at if distance <= FAR else -1


def _found(words: str, text: str) -> Iterator[re.Match[str]]:
    return re.finditer(r"\s+".join(map(re.escape, words.split())), text)


def _passage(text: str, at: int) -> str:
    """The text around a place, from one line's beginning to another's end."""
    begin = text.rfind("\n", 0, max(0, at - AROUND)) + 1 if at > AROUND else 0
    end = text.find("\n", at + AROUND)
    return " ".join(text[begin : end if end >= 0 else len(text)].split())
