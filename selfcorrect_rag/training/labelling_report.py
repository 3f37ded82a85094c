"""What labelling will cost, and how it came out."""

from dataclasses import dataclass
from typing import NamedTuple


class Cost(NamedTuple):
    """What a run will take where no call has to be repeated."""

    calls: int
    input_tokens: int
    """An estimate: four characters a token."""


@dataclass
class Report:
    """How requests came out, of all runs together, and what this run used."""

    outcomes: dict[str, dict[str, int]]
    """By group: how many are ``labelled``, ``malformed`` and ``failed``."""
    calls: int = 0
    """Answers of the model in this run."""
    input_tokens: int = 0
    """As the model itself tells, as far as it does."""
    output_tokens: int = 0
