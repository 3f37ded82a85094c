"""A file of labels: JSON rows that are only ever appended, each with the key of its request."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from selfcorrect_rag.errors import BadTrainingData


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file of labels, or of failures; none where there is no file.

    Half a last line, which a kill may leave, is none.

    Raises:
        BadTrainingData: it is another kind of file; the message names the line.
    """
    whole, _ = _whole_and_torn(path)
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            row = json.loads(line)
            is_ours = isinstance(row["key"], str)
        except (ValueError, KeyError, TypeError):
            is_ours = False
        if not is_ours:
            raise BadTrainingData(f"{path}:{number}: no row of labels; write to another file")
        yield row


@contextmanager
def appending(path: Path) -> Iterator[IO[bytes]]:
    """The file, open for more rows; what a kill left of a last one is cut off.

    Raises:
        BadTrainingData: it is another kind of file.
    """
    whole, _ = _whole_and_torn(path)
    with path.open("ab") as file:
        file.truncate(len(whole))
        yield file


def append(file: IO[bytes], row: Mapping[str, Any]) -> None:
    """Write a row so that it outlives this process."""
    file.write(_line(row))
    file.flush()


def put_in_order(path: Path, keys: Iterable[str]) -> None:
    """Rearrange a file's rows: those of ``keys`` first, in this order, then the others."""
    by_key = {row["key"]: row for row in rows(path)}
    ordered = [by_key.pop(key) for key in keys if key in by_key]
    whole = path.with_name(f"{path.name}.new")  # a kill leaves the old file or the new one
    with whole.open("wb") as file:
        file.writelines(map(_line, [*ordered, *by_key.values()]))
    whole.replace(path)


_OPENING = b'{"key": "'


def _whole_and_torn(path: Path) -> tuple[bytes, bytes]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return b"", b""
    except OSError as error:
        raise BadTrainingData(f"cannot read {path}: {error}") from error
    end = text.rfind(b"\n") + 1
    torn = text[end:]
    if not _OPENING.startswith(torn[: len(_OPENING)]):  # somebody else's file, not to be cut
        raise BadTrainingData(f"{path} ends in no row of labels; write to another file")
    return text[:end], torn


def _line(row: Mapping[str, Any]) -> bytes:
    # In ASCII: half a surrogate pair, which a model may answer, fits into no UTF-8.
    return json.dumps(row).encode("ascii") + b"\n"
