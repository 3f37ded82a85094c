"""What a run has finished: rows, and how the questions among them fared."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from selfcorrect_rag.bulk.rows import BROKEN


class Finished(NamedTuple):
    """Rows that were finished."""

    rows: int = 0
    failed: int = 0
    """Rows with an error, of ``rows``; broken rows of the input are among them."""
    tokens: int = 0
    """Read and written, of models that say so."""
    errors: tuple[str, ...] = ()
    """For each question that was asked its error, empty where it was answered; broken rows of the
    input were not asked."""

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Self:
        """What these rows of the output add up to."""
        found = list(rows)
        return cls(
            rows=len(found),
            failed=sum(row["error_type"] is not None for row in found),
            tokens=sum(
                (row["prompt_tokens"] or 0) + (row["generated_tokens"] or 0) for row in found
            ),
            errors=tuple(_error(row) for row in found if row["error_type"] != BROKEN),
        )


def _error(row: Mapping[str, Any]) -> str:
    return f"{row['error_type']}: {row['error']}" if row["error_type"] else ""
