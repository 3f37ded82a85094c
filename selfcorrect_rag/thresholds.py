"""From scores to an action: CRAG's two thresholds, the paper's values, calibration, and when the
reader answers."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from math import inf
from typing import Literal, NamedTuple, get_args

Action = Literal["correct", "incorrect", "ambiguous"]
"""The action that a retrieval triggers (CRAG section 4.3)."""


ANSWER_ABOVE = 0.7
"""Calibrated confidence above which the reader states an answer."""


@dataclass(frozen=True)
class Thresholds:
    """Above ``upper`` a passage is relevant, below ``lower`` it is not (CRAG section 4.3).

    Both are in [-1, 1], as scores are, and no score is above 1 or below -1: with ``upper`` 1 no
    action is ever correct, with ``lower`` -1 none is ever incorrect, and where the two are one
    number none is ambiguous. These are the ablations of section 5.4 (Table 2).

    Raises:
        ValueError: not -1 <= lower <= upper <= 1.
    """

    upper: float
    lower: float

    def __post_init__(self) -> None:
        if not -1 <= self.lower <= self.upper <= 1:
            raise ValueError(
                f"thresholds need -1 <= lower <= upper <= 1, not {self.lower} and {self.upper}"
            )

    def action(self, scores: Sequence[float]) -> Action:
        """The action that the scores of a question's passages trigger (CRAG section 4.3).

        Correct where at least one score is above ``upper``; incorrect where all are below
        ``lower``, as they are where there is no passage at all; otherwise ambiguous. A score
        equal to a threshold is neither above nor below it (the official code, unlike the paper,
        has ``>=`` for both), except that a single threshold decides every question: a best score
        equal to it is incorrect.
        """
        if any(score > self.upper for score in scores):
            return "correct"
        if self.upper == self.lower or all(score < self.lower for score in scores):
            return "incorrect"
        return "ambiguous"


PRESETS = {
    "popqa": Thresholds(0.59, -0.99),
    "pubqa": Thresholds(0.5, -0.91),
    "arc": Thresholds(0.5, -0.91),
    "bio": Thresholds(0.95, -0.91),
}
"""The paper's thresholds by task (CRAG appendix B.2): they fit its own T5-large, no other."""


class Judged(NamedTuple):
    """A labelled question of a development set."""

    scores: Sequence[float]
    """The evaluator's, of each of its passages."""
    relevant: bool
    """Whether any of these passages is relevant."""


class Calibration(NamedTuple):
    """Thresholds, and what they do on labelled questions."""

    thresholds: Thresholds
    counts: dict[str, int]
    """How many questions triggered each action."""
    accuracy: dict[str, float | None]
    """Share of the questions that triggered correct with a relevant passage; of those that
    triggered incorrect, the share without one; None where no question did."""
    action_accuracy: float
    """Mean worth of all actions: 1 for a right one, 0 for a wrong one, and for an ambiguous one
    what it was said to be worth."""


def measure(
    rows: Iterable[Judged], thresholds: Thresholds, *, ambiguous_worth: float = 0.75
) -> Calibration:
    """Measure ``thresholds`` on ``rows``, such as rows that :func:`calibrate` did not see.

    Raises:
        ValueError: no rows, or a worth outside [0, 1].
    """
    if not 0 <= ambiguous_worth <= 1:
        raise ValueError(f"an ambiguous action is worth 0 to 1, not {ambiguous_worth}")
    taken = Counter((thresholds.action(row.scores), row.relevant) for row in rows)
    if not taken:
        raise ValueError("there are no rows to measure thresholds on")
    counts = {action: taken[action, True] + taken[action, False] for action in get_args(Action)}
    right = {"correct": taken["correct", True], "incorrect": taken["incorrect", False]}
    worth = sum(right.values()) + ambiguous_worth * counts["ambiguous"]
    return Calibration(
        thresholds,
        counts,
        {name: of / counts[name] if counts[name] else None for name, of in right.items()},
        worth / taken.total(),
    )


def calibrate(rows: Iterable[Judged], *, ambiguous_worth: float = 0.75) -> Calibration:
    """The thresholds with the best action accuracy on development rows.

    Never give it rows that a result is reported for. What it says of its own rows is optimistic
    where they are few: :func:`measure` the thresholds on others.

    Args:
        rows: labelled questions, some with a relevant passage and some without. One that has no
            scores is incorrect whatever the thresholds, and is left out.
        ambiguous_worth: in [0, 1], what an ambiguous action counts next to a right one (1) and a
            wrong one (0). At 0.5 or less being ambiguous hardly ever pays; near 1 hardly anything
            else does. The default, midway, acts where acting is right three times in four.

    Raises:
        ValueError: there is no row of one of the two kinds, or a worth outside [0, 1].
    """
    rows = [row for row in rows if row.scores]
    if len({row.relevant for row in rows}) < 2:
        raise ValueError("calibration needs rows with a relevant passage and rows without one")
    # Only the best score of a question matters: one is above upper if and only if the best is,
    # and all are below lower if and only if the best is. So the rows lie on a line, which two
    # cuts divide into incorrect, ambiguous and correct.
    best = sorted((max(row.scores), row.relevant) for row in rows)
    points = [
        (score, [relevant for _, relevant in group])
        for score, group in groupby(best, key=lambda row: row[0])
    ]
    cuts = [-1.0, *((a + b) / 2 for (a, _), (b, _) in pairwise(points)), 1.0]

    def gains(called: bool) -> list[float]:
        """The gain of calling the rows of each point so, in place of ambiguous."""
        return [kinds.count(called) - ambiguous_worth * len(kinds) for _, kinds in points]

    # The worth of calling all before a cut incorrect, and all after it correct.
    before = list(accumulate(gains(False), initial=0.0))
    after = list(accumulate(reversed(gains(True)), initial=0.0))[::-1]
    if points[0][0] == -1:
        after[0] = -inf  # no threshold is below the lowest score
    lower, choices = 0, []
    for upper in range(len(cuts)):
        if before[upper] > before[lower]:
            lower = upper
        choices.append((before[lower] + after[upper], upper - lower, upper))
    _, width, upper = max(choices)  # of equals the most cautious
    chosen = Thresholds(upper=cuts[upper], lower=cuts[upper - width])
    return measure(rows, chosen, ambiguous_worth=ambiguous_worth)
