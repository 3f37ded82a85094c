"""What a run has finished so far, and when to give up."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Self

from selfcorrect_rag.bulk.rows import BROKEN
from selfcorrect_rag.errors import SelfCorrectError

FAILURES = 32
"""Questions that must all fail alike, before any is answered, until a run gives up."""


class AllFailed(SelfCorrectError, RuntimeError):
    """The first questions all failed with one error; the message has it."""


class Finished(NamedTuple):
    """Rows that were finished; counts that add up."""

    rows: int = 0
    failed: int = 0
    """Rows with an error, of ``rows``; broken rows of the input are among them."""
    calls: int = 0
    tokens: int = 0
    """Read and written, of models that say so."""
    answered: int = 0
    errors: tuple[str, ...] = ()
    """Of questions that were asked and failed, each once."""

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]]) -> Self:
        """What these rows of the output add up to."""
        found = list(rows)
        errors = [f"{row['error_type']}: {row['error']}" for row in found if _has_failed(row)]
        return cls(
            rows=len(found),
            failed=sum(row["error_type"] is not None for row in found),
            calls=sum(row["model_calls"] for row in found),
            tokens=sum(
                (row["prompt_tokens"] or 0) + (row["generated_tokens"] or 0) for row in found
            ),
            answered=sum(row["error_type"] is None for row in found),
            errors=tuple(dict.fromkeys(errors)),
        )

    def plus(self, other: "Finished") -> "Finished":
        """The sum; no more than two kinds of errors are kept."""
        numbers = (one + more for one, more in zip(self[:-1], other[:-1], strict=True))
        return Finished(*numbers, tuple(dict.fromkeys(self.errors + other.errors))[:2])

    def check(self) -> None:
        """Do nothing if it makes sense to go on.

        Raises:
            AllFailed: nothing was answered, and all that was asked failed alike.
        """
        if not self.answered and self.failed >= FAILURES and len(self.errors) == 1:
            raise AllFailed(
                f"the first {self.failed} questions all failed: {self.errors[0]}; when that is "
                "mended, --retry-failed asks them again"
            )


def _has_failed(row: Mapping[str, Any]) -> bool:
    return row["error_type"] not in (None, BROKEN)
