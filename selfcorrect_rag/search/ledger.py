"""Which file put which passages into an index, so that a run can be stopped and repeated."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from selfcorrect_rag.search.index_faults import named_faults

FILE = "files.sqlite3"

_SCHEMA = """
CREATE TABLE IF NOT EXISTS files (
    source TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, fault TEXT
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS holds (
    source TEXT NOT NULL, id TEXT NOT NULL, fingerprint TEXT NOT NULL, PRIMARY KEY (source, id)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS holders ON holds (id);
"""


class Ledger:
    """The sources of an index's passages, for one writer at a time.

    A source is a file's absolute path; its fingerprint tells its content and how it was cut. A
    source is finished when all its passages are in the index. What it held under an earlier
    fingerprint is stale from then on, unless another source holds it too.

    Raises:
        IndexBusy: another process holds the ledger; the lock ends with that process.
    """

    def __init__(self, folder: Path) -> None:
        with named_faults(folder):
            self._database = sqlite3.connect(folder / FILE, timeout=0)
            try:
                self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._database.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} COMMIT;")
            except sqlite3.Error:
                self._database.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()

    def finished(self, source: str, fingerprint: str) -> bool:
        """Whether all passages of this version of ``source`` are in the index."""
        query = "SELECT 1 FROM files WHERE source = ? AND fingerprint = ?"
        return self._database.execute(query, (source, fingerprint)).fetchone() is not None

    def fault(self, source: str) -> str | None:
        """What could not be read in a finished source."""
        query = "SELECT fault FROM files WHERE source = ?"
        fault: str | None = self._database.execute(query, (source,)).fetchone()[0]
        return fault

    def sources(self) -> list[str]:
        """All sources that hold passages, finished or not."""
        query = "SELECT source FROM holds UNION SELECT source FROM files ORDER BY source"
        return [source for (source,) in self._database.execute(query)]

    def hold(self, rows: Iterable[tuple[str, str, str]]) -> None:
        """Note (source, passage id, fingerprint), before the passages go into the index."""
        rows = list(rows)
        begun = {(source, fingerprint) for source, _, fingerprint in rows}
        with self._database:
            self._database.executemany("INSERT OR REPLACE INTO holds VALUES (?, ?, ?)", rows)
            # From here on no earlier version is whole, should the file go back to it.
            self._database.executemany(
                "DELETE FROM files WHERE source = ? AND fingerprint <> ?", begun
            )

    def stale(self, source: str, fingerprint: str | None = None) -> list[str]:
        """The passages that only ``source`` holds, and not with this ``fingerprint``."""
        query = """
            SELECT id FROM holds AS mine WHERE source = ? AND fingerprint IS NOT ? AND NOT EXISTS
            (SELECT 1 FROM holds AS others WHERE others.id = mine.id AND others.source <> ?)
        """
        return [id_ for (id_,) in self._database.execute(query, (source, fingerprint, source))]

    @contextmanager
    def settling(self) -> Iterator[None]:
        """`finish` and `forget` inside hold together, or, if it ends in an error, not at all."""
        with self._database:
            yield

    def finish(self, source: str, fingerprint: str, fault: str | None) -> None:
        """Note that ``source`` is in the index whole, and forget its earlier versions."""
        self._database.execute(
            "DELETE FROM holds WHERE source = ? AND fingerprint <> ?", (source, fingerprint)
        )
        self._database.execute(
            "INSERT OR REPLACE INTO files VALUES (?, ?, ?)", (source, fingerprint, fault)
        )

    def forget(self, source: str) -> None:
        """Note that ``source`` holds nothing."""
        self._database.execute("DELETE FROM holds WHERE source = ?", (source,))
        self._database.execute("DELETE FROM files WHERE source = ?", (source,))
