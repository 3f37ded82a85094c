"""Reads questions as a stream from JSONL, CSV and Parquet: files, folders and globs.

A row that cannot be asked is a :class:`Question` with an error; a file that cannot be read is one.
"""

import csv
import glob
import gzip
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from selfcorrect_rag.errors import SelfCorrectError, describe_error, require
from selfcorrect_rag.intake import valid
from selfcorrect_rag.journal import digest

SUFFIXES = (".jsonl", ".csv", ".parquet", ".jsonl.gz", ".csv.gz")
LONGEST_LINE = 16 * 2**20
"""Maximum characters of a line of JSONL or a field of CSV."""


class BadQuestions(SelfCorrectError, ValueError):
    """There are no questions, no column of that name, or a file cannot be read."""


class Columns(NamedTuple):
    """The columns that are read."""

    question: str = "question"
    messages: str = ""
    """Conversations to read instead: lists of {role, content} that end with the question."""
    keep: tuple[str, ...] = ()
    """Columns that the answers have too."""


class Question(NamedTuple):
    """A row of the input, as JSON values."""

    key: str
    """32 hexadecimal digits of what is asked, what is kept, and the run's settings."""
    place: str
    """Its file and row number, by which answers are ordered."""
    asked: str
    """The graph's input as JSON; empty if it cannot be asked."""
    kept: str
    """The kept columns as a JSON object."""
    error: str = ""


def find_files(places: Iterable[str | Path]) -> list[str]:
    """The files at paths, folders (all below) and globs, each once; hidden ones only by name.

    Raises:
        BadQuestions: nothing is there, or a file of another kind.
    """
    found: dict[str, str] = {}
    for place in map(str, places):
        if Path(place).is_dir():
            inside = glob.glob(f"{glob.escape(place)}/**/[!_.]*", recursive=True)
            files = sorted(file for file in inside if file.lower().endswith(SUFFIXES))
        else:
            files = [place] if Path(place).is_file() else sorted(glob.glob(place, recursive=True))
        if not files or not all(file.lower().endswith(SUFFIXES) for file in files):
            raise BadQuestions(f"no questions at {place}; give {', '.join(SUFFIXES)} files")
        for file in files:
            found.setdefault(str(Path(file).resolve()), file)
    return list(found.values())


def read_questions(
    files: Sequence[str], columns: Columns, run: str, done: Collection[str]
) -> Iterator[Question]:
    """The rows of ``files`` that are not ``done``, equal ones once; ``run`` is part of each id.

    Raises:
        BadQuestions: a file cannot be read to its end, or none of its rows has the column.
    """
    wanted, taken = columns.messages or columns.question, set(done)
    for number, file in enumerate(files):
        names: set[str] = set()
        try:
            for row_number, row in enumerate(_rows(file), start=1):
                names |= row.keys() if isinstance(row, Mapping) else set()
                asked, kept, error = "", "{}", ""
                try:
                    kept = json.dumps({name: _plain(row, name) for name in columns.keep})
                    asked = json.dumps(_asked(row, columns))
                except ValueError as why:
                    error = f"{Path(file).name}:{row_number}: {why}"
                key = digest([run, asked, kept, error])
                if key in taken:
                    continue
                taken.add(key)
                yield Question(key, f"{number:06d}:{row_number:09d}", asked, kept, error)
        except (OSError, EOFError, ValueError, csv.Error) as error:
            raise BadQuestions(f"{file} cannot be read ({describe_error(error)})") from error
        missing = {wanted, *columns.keep} - names
        if missing:
            there = ", ".join(sorted(names)[:20]) or "none"
            raise BadQuestions(f"{file} has no column {min(missing)}; there are: {there}")


def _rows(file: str) -> Iterator[Any]:
    """The rows of a file; an unreadable one as the ValueError that says why."""
    if file.lower().endswith(".parquet"):
        parquet = require("pyarrow.parquet", "ray")
        for batch in parquet.ParquetFile(file).iter_batches(1_000):
            yield from batch.to_pylist()
        return
    opener: Any = gzip.open if file.lower().endswith(".gz") else open
    with opener(file, "rt", encoding="utf-8-sig", errors="replace", newline="") as stream:
        if ".csv" in Path(file).name.lower():
            csv.field_size_limit(LONGEST_LINE)
            yield from csv.DictReader(stream)
            return
        while line := stream.readline(LONGEST_LINE):
            if len(line) == LONGEST_LINE:
                raise ValueError(f"a line is longer than {LONGEST_LINE // 2**20} MiB")
            if line.strip():
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError):
                    yield ValueError("not JSON")


def _plain(row: Any, name: str) -> Any:
    if isinstance(row, ValueError):
        raise row
    if not isinstance(row, Mapping):
        raise ValueError("not a JSON object")
    return json.loads(valid(json.dumps(row.get(name), default=str, ensure_ascii=False)))


def _asked(row: Any, columns: Columns) -> dict[str, Any]:
    """The graph's input; a ValueError says why there is none."""
    value = _plain(row, columns.messages or columns.question)
    if not columns.messages:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{columns.question} must be a text that is not empty")
        return {"question": value}
    try:
        given = json.loads(value) if isinstance(value, str) else value
        messages = [{"role": str(m["role"]), "content": m["content"]} for m in given]
        last = messages[-1]
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise ValueError(f"{columns.messages} must be a list of {{role, content}}") from error
    if last["role"] not in ("user", "human") or not str(last["content"]).strip():
        raise ValueError(f"{columns.messages} must end with a question of the user's")
    return {"messages": messages}
