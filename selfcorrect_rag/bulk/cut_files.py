"""Files into passages, in the tasks of Ray Data.

What a task yields are rows of one table: a file's passages, then a row that says how the file
ended. A file is read where the task runs: every machine of a cluster needs it under the same path.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from selfcorrect_rag.bulk.ray_cluster import quiet
from selfcorrect_rag.errors import require
from selfcorrect_rag.search.files import FoundFile, UnreadableFile
from selfcorrect_rag.search.index import passage_id
from selfcorrect_rag.search.indexing import cut, fingerprint
from selfcorrect_rag.search.loading import open_file
from selfcorrect_rag.search.store import listed_metadata

if TYPE_CHECKING:
    import pyarrow

READ, UNCHANGED, UNREADABLE = "read", "unchanged", "unreadable"


class CutRow(TypedDict):
    """A passage of a file, or, where ``ended`` is not "", how a file ended."""

    file: int
    """Its place among the files, from 0."""
    fingerprint: str
    id: str
    text: str
    metadata: str
    """JSON."""
    share: float
    """What the passage is of the file, in [0, 1]."""
    ended: str
    """`READ`, `UNCHANGED` or `UNREADABLE`."""
    reason: str
    """Why all of it or parts could not be read."""


_BLANK = {name: 0.0 if name == "share" else "" for name in CutRow.__annotations__}
_ROWS = 512
"""Rows that a task hands on at once; its memory does not grow with a file of rows."""
_TASKS = 200
"""Least number of tasks that many files are spread over."""
_FILES_A_TASK = 64


def cut_files(
    files: Sequence[FoundFile],
    finished: Sequence[str | None],
    *,
    words: int,
    overlap: int,
    max_bytes: int,
    batch_size: int,
) -> Iterator[list[CutRow]]:
    """Batches of at most ``batch_size`` rows, in the order of the files.

    Args:
        finished: for each file the fingerprint that is indexed already; with that it is unchanged.
        words, overlap: how texts are cut; see `chunking.chunk`.
        max_bytes: see `index_paths`.
    """
    data = require("ray.data", "ray")
    if not files:
        return
    rows = [
        {"file": number, "path": os.fsencode(file.path), "finished": known or ""}
        for number, (file, known) in enumerate(zip(files, finished, strict=True))
    ]
    tasks = min(len(rows), max(_TASKS, len(rows) // _FILES_A_TASK))
    read = partial(_read, roots=files[0].roots, words=words, overlap=overlap, max_bytes=max_bytes)
    listed = data.from_items(rows, override_num_blocks=tasks)
    # In the order of one process: of two files with the same passage, the same one has it.
    quiet(listed).execution_options.preserve_order = True
    cutting = listed.map_batches(read, batch_size=None)
    for table in cutting.iter_batches(batch_size=batch_size, batch_format="pyarrow"):
        yield cast(list[CutRow], table.to_pylist())


def _read(
    batch: Mapping[str, Any],
    roots: tuple[Path, ...] | None,
    words: int,
    overlap: int,
    max_bytes: int,
) -> Iterator["pyarrow.Table"]:
    """The rows of some files, in tables."""
    pyarrow = require("pyarrow", "ray")
    rows: list[dict[str, Any]] = []
    for number, path, finished in zip(batch["file"], batch["path"], batch["finished"], strict=True):
        found = FoundFile(Path(os.fsdecode(path)), roots)
        for row in _rows(found, finished, words, overlap, max_bytes):
            rows.append({**_BLANK, "file": int(number), **row})
            if len(rows) == _ROWS:
                yield pyarrow.Table.from_pylist(rows)
                rows.clear()
    yield pyarrow.Table.from_pylist(rows)


def _rows(
    found: FoundFile, finished: str, words: int, overlap: int, max_bytes: int
) -> Iterator[dict[str, Any]]:
    try:
        with open_file(found, max_bytes) as file:
            version = fingerprint(file, words, overlap)
            if version == finished:
                yield {"fingerprint": version, "ended": UNCHANGED}
                return
            for passage, share in cut(file, found.name, words, overlap):
                yield {
                    "fingerprint": version,
                    "id": passage_id(passage),
                    "text": passage.page_content,
                    "metadata": listed_metadata(passage),
                    "share": share,
                }
    except UnreadableFile as error:
        yield {"ended": UNREADABLE, "reason": str(error)}
        return
    yield {"fingerprint": version, "ended": READ, "reason": "; ".join(file.faults)}
