"""What docs/faults.md says of each fault is what happens."""

import importlib
import pkgutil
from typing import Any

import pytest

import tests.faults
from selfcorrect_rag.errors import SelfCorrectError
from tests.faults.cases import CASES, Case, Seen
from tests.faults.table import PAGE, Row, rows

for module in pkgutil.iter_modules(tests.faults.__path__):
    if not module.name.startswith("test_"):
        importlib.import_module(f"tests.faults.{module.name}")

ROWS = rows(PAGE.read_text(encoding="utf-8"))
BY_NAME = {(case.section, case.fault): case for case in CASES}


def _every() -> list[Any]:
    every = []
    for row in ROWS:
        case = BY_NAME.get((row.section, row.fault))
        for variant in case.variants() if case else ({},):
            name = "-".join([str(row), *variant.values()])
            every.append(pytest.param(row, case, variant, id=name))
    return every


@pytest.mark.parametrize(("row", "case", "variant"), _every())
def test_fault(
    row: Row, case: Case | None, variant: dict[str, str], request: pytest.FixtureRequest
) -> None:
    assert case is not None, "the row has no case: nobody knows whether it is true"
    fixtures = {n: request.getfixturevalue(n) for n in case.takes() if n not in variant}
    seen = case.provoke(**variant, **fixtures)
    _compare(row, seen)


def _compare(row: Row, seen: Seen) -> None:
    error = seen.error
    if row.error is None and error is not None:
        raise error
    assert row.error in (None, *(kind.__name__ for kind in type(error).__mro__)), repr(error)
    said = "\n".join([*seen.says, *([str(error)] if error else [])])
    for text in row.says:
        assert text in said
    if error is not None:
        assert isinstance(error, SelfCorrectError)
        assert "\n" not in str(error)
        cause = error.__cause__
        kinds = [kind.__name__ for kind in type(cause).__mro__] if cause else [None]
        assert row.cause in kinds, repr(cause)
    assert (seen.goes_on, seen.stopped) == (row.goes_on, row.stopped)
    assert list(seen.again) == []


def test_every_case_has_its_row() -> None:
    assert set(BY_NAME) - {(row.section, row.fault) for row in ROWS} == set()
    assert len(BY_NAME) == len(CASES)


def test_rows_that_say_too_little_are_refused() -> None:
    good = '| it raises | the run ends: "raised OSError" | `RetrievalFailed` from `OSError` | no |'
    (row,) = rows(f"## Retriever\n\n{good}\n")
    assert (row.section, row.fault, row.says) == ("Retriever", "it raises", ["raised OSError"])
    assert (row.error, row.cause, row.goes_on) == ("RetrievalFailed", "OSError", "no")
    for worse in (
        good.replace('"', ""),
        good.replace("`RetrievalFailed` from", "RetrievalFailed from"),
        good.replace("| no |", "| perhaps |"),
        good.replace("| no |", "|"),
    ):
        with pytest.raises(ValueError, match="Retriever"):
            rows(f"## Retriever\n\n{worse}\n")
