"""Put files into an index: nothing twice, and nothing lost when a run is killed.

A file is recorded as finished once all its passages are in the index; the next run skips finished
files by their content, and in the file that was cut short the passages that are there. A changed
file's passages replace its earlier ones. A file that has vanished keeps its passages until a run
prunes.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from selfcorrect_rag.search.convert import NotRead
from selfcorrect_rag.search.documents import (
    MAX_BYTES,
    PASSAGE_OVERLAP,
    PASSAGE_WORDS,
    Problem,
    convert,
    find_files,
    passage_id,
    passages,
    source_name,
    split,
)
from selfcorrect_rag.search.index import BATCH_SIZE, Index


@dataclass(frozen=True)
class IndexReport:
    """The counts and problems of one run of indexing."""

    files: int
    """Files read, in whole or in part."""
    unchanged: int
    """Files already indexed and unchanged."""
    added: int
    """Passages that were not in the index before."""
    removed: int
    """Passages of earlier versions of changed files, and of pruned files."""
    passages: int
    """Different passages in the index now."""
    problems: tuple[Problem, ...]
    """Files and folders that could not be read, or only in part."""
    vanished: tuple[str, ...]
    """Indexed files under the given paths that no longer exist; gone from the index if pruned."""


def index_paths(
    paths: Iterable[str | Path],
    index: Index,
    *,
    chunk_words: int = PASSAGE_WORDS,
    chunk_overlap: int = PASSAGE_OVERLAP,
    encoding: str | None = None,
    max_bytes: int = MAX_BYTES,
    prune: bool = False,
    follow_links: bool = False,
    on_progress: Callable[[float, int, str], None] = lambda done, passages, source: None,
) -> IndexReport:
    """Put files, and the files in folders, into ``index``; see `load` for the metadata.

    Args:
        encoding: Of text files that are not UTF-8; None detects Windows-1252 and refuses the rest.
        prune: Remove the passages of files under ``paths`` that no longer exist.
        follow_links: Follow links out of ``paths`` too; otherwise each is a problem in the report.
        on_progress: Called after each batch and file with the fraction of files that are done, the
            passages handled, and the file.
    """
    split("", chunk_words, chunk_overlap)  # bad sizes fail before anything is read
    paths = [Path(path).absolute() for path in paths]
    found = list(find_files(paths, follow_links=follow_links))
    files = [path for path in found if isinstance(path, Path)]
    problems = [problem for problem in found if isinstance(problem, Problem)]
    read = unchanged = handled = added = removed = 0
    with index.writing():
        finished = index.finished()
        for place, path in enumerate(files):
            source = source_name(path)
            try:
                with path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                fingerprint = f"{digest}:{chunk_words}:{chunk_overlap}:{encoding}"
                known, fault = finished.get(source, ("", ""))
                if known == fingerprint:
                    unchanged += 1
                else:
                    sections, faults = convert(path, encoding, max_bytes)
                    rest = passages(sections, source, chunk_words, chunk_overlap)
                    ids: set[str] = set()
                    while batch := list(islice(rest, BATCH_SIZE)):
                        added += index.write(batch)
                        ids.update(map(passage_id, batch))
                        handled += len(batch)
                        on_progress(place / len(files), handled, source)
                    fault = "; ".join(faults)
                    removed += index.finish(source, ids, fingerprint, fault)
                    read += 1
                if fault:
                    problems.append(Problem(source, fault, partly=True))
            except NotRead as error:
                problems.append(Problem(source, str(error)))
            except OSError as error:
                if error.filename is None:  # of the index, not of the file
                    raise
                problems.append(Problem(source, error.strerror or str(error)))
            on_progress((place + 1) / len(files), handled, source)
        present = set(map(source_name, files))  # names that are not UTF-8 do not lead back
        vanished = [
            source
            for source in index.sources()
            if source not in present
            and any(Path(source).is_relative_to(path) for path in paths)
            and not os.path.exists(source)
        ]
        if prune:
            removed += sum(index.finish(source, set(), "", "") for source in vanished)
    return IndexReport(
        read, unchanged, added, removed, len(index), tuple(problems), tuple(vanished)
    )
