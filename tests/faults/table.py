"""docs/faults.md as rows that a test can hold something to."""

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
COLUMNS = ["Fault", "What happens", "Error", "Goes on"]
ENDS = ("yes", "from its thread", "when run again", "no")
"""How "Goes on" may begin."""


class Row(NamedTuple):
    """What a row says."""

    section: str
    fault: str
    says: list[str]
    """Texts in double quotes, which the message of the error, a note or the output has."""
    error: str | None
    """The name of its class."""
    cause: str | None
    goes_on: str
    stopped: str | None

    def __str__(self) -> str:
        return f"{self.section}: {self.fault}"


def rows(page: str) -> list[Row]:
    """The rows of all tables on the page.

    Raises:
        ValueError: a row says less than a test needs.
    """
    found, section = [], ""
    for line in page.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ").strip()
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells or cells == COLUMNS or set("".join(cells)) <= set("-: "):
            continue
        found.append(_row(section, cells))
    return found


def _row(section: str, cells: list[str]) -> Row:
    try:
        fault, happens, error, goes_on = cells
    except ValueError:
        raise ValueError(f"{section}: {cells} are not {COLUMNS}") from None
    says = re.findall(r'"([^"]+)"', happens)
    raised = re.fullmatch(r"none|`(\w+)`(?: from `(\w+)`)?", error)
    end = re.fullmatch(rf"({'|'.join(ENDS)})(?:, `stopped` is `(\w+)`)?", goes_on)
    if not says or not raised or not end:
        raise ValueError(
            f"{section}: {fault}: a row quotes what is said, names `Error` from `Cause` or none, "
            f"and goes on as one of {ENDS}, `stopped` is `what`"
        )
    return Row(section, fault, says, raised[1], raised[2], end[1], end[2])
