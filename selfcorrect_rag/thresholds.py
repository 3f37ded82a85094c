"""From scores to an action: CRAG's two thresholds, the paper's values, and calibration."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from math import ceil, fsum, inf
from typing import Literal, NamedTuple, get_args

from selfcorrect_rag.errors import BadArgument, BadSettings

Action = Literal["correct", "incorrect", "ambiguous"]
"""The action that a retrieval triggers (CRAG section 4.3)."""
ANSWER_ABOVE = 0.5
"""Calibrated confidence above which the reader states an answer."""


@dataclass(frozen=True)
class Thresholds:
    """Above ``upper`` a passage is relevant, below ``lower`` it is not; both in [-1, 1].

    ``upper=1`` rules out correct, ``lower=-1`` incorrect, equal ones ambiguous (Table 2).
    """

    upper: float
    lower: float

    def __post_init__(self) -> None:
        if not -1 <= self.lower <= self.upper <= 1:
            raise BadSettings(f"thresholds need -1 <= lower <= upper <= 1, got {self}")

    def action(self, scores: Sequence[float]) -> Action:
        """Return the action of a question's scores (CRAG section 4.3).

        A score equal to a threshold is neither above nor below it (unlike in the official code),
        but with equal thresholds a best score equal to them is incorrect.
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
"""The paper's thresholds by task (CRAG appendix B.2), which fit its own T5-large only."""


class Judged(NamedTuple):
    """A labelled question: its passages' scores, and whether any of them is relevant."""

    scores: Sequence[float]
    relevant: bool


class Calibration(NamedTuple):
    """Thresholds, and how they do on labelled questions."""

    thresholds: Thresholds
    counts: dict[str, int]
    """Questions by action."""
    action_accuracy: float
    """Mean worth of all actions: 1 if right, 0 if wrong, ``ambiguous_worth`` if ambiguous."""


def measure(
    rows: Iterable[Judged], thresholds: Thresholds, *, ambiguous_worth: float = 0.75
) -> Calibration:
    """Measure ``thresholds`` on rows, best on those that :func:`calibrate` did not see."""
    if not 0 <= ambiguous_worth <= 1:
        raise ValueError(f"ambiguous_worth must be 0 to 1, got {ambiguous_worth}")
    found = Counter((thresholds.action(row.scores), row.relevant) for row in rows)
    counts = {action: found[action, True] + found[action, False] for action in get_args(Action)}
    right = found["correct", True] + found["incorrect", False]
    worth = right + ambiguous_worth * counts["ambiguous"]
    return Calibration(thresholds, counts, worth / found.total())


def calibrate(rows: Iterable[Judged], *, ambiguous_worth: float = 0.75) -> Calibration:
    """Return the thresholds with the best action accuracy; of equals the most cautious.

    Rows are labelled questions of both kinds; those without scores are left out. By the default
    ``ambiguous_worth``, in [0, 1], it acts where acting is right three times in four.
    """
    rows = [row for row in rows if row.scores]
    if len({row.relevant for row in rows}) < 2:
        raise ValueError("calibration needs rows with a relevant passage and rows without one")
    # Only a question's best score matters, so two cuts divide sorted rows into three actions.
    best = sorted((max(row.scores), row.relevant) for row in rows)
    points = [(s, [kind for _, kind in group]) for s, group in groupby(best, key=lambda b: b[0])]
    cuts = [-1.0, *((a + b) / 2 for (a, _), (b, _) in pairwise(points)), 1.0]
    correct, incorrect = (  # what calling a point so gains over calling it ambiguous
        [kinds.count(kind) - ambiguous_worth * len(kinds) for _, kinds in points]
        for kind in (True, False)
    )
    before = list(accumulate(incorrect, initial=0.0))  # all before a cut incorrect
    after = list(accumulate(reversed(correct), initial=0.0))[::-1]  # all after it correct
    if points[0][0] == -1:
        after[0] = -inf  # no threshold is below a score of -1
    # For each upper cut the best lower one, and of equals the lowest.
    lowers: Iterable[int] = accumulate(
        range(len(cuts)), lambda low, i: i if before[i] > before[low] else low
    )
    _, width, upper = max((before[low] + after[i], i - low, i) for i, low in enumerate(lowers))
    chosen = Thresholds(upper=cuts[upper], lower=cuts[upper - width])
    return measure(rows, chosen, ambiguous_worth=ambiguous_worth)


class Stated(NamedTuple):
    """An answer to a labelled question, and what is lost if it is stated."""

    score: float | None
    """Its score, higher if surer; None if it is never stated, because it is a refusal already or
    has no score."""
    loss: float
    """0 if it is right, 1 if it is wrong, between them if it is partly right."""


class Refusals(NamedTuple):
    """The effect of a threshold, below which answers are refused, on labelled questions."""

    score_above: float | None
    """Answers are stated if their score is above this; None states all that have a score."""
    answered: int
    wrong: float
    """Sum of the losses of the stated answers: their number, if each is right or wrong."""
    questions: int


def measure_refusals(answers: Iterable[Stated], score_above: float | None) -> Refusals:
    """Count what a threshold states, and what is wrong with it."""
    rows, floor = list(answers), -inf if score_above is None else score_above
    losses = [row.loss for row in rows if row.score is not None and row.score > floor]
    return Refusals(score_above, len(losses), fsum(losses), len(rows))


def refusal_thresholds(answers: Iterable[Stated]) -> list[float | None]:
    """Return every threshold that refuses another answer, rounded up to four decimals and
    ascending; the first is None, which refuses none."""
    scores = {row.score for row in answers if row.score is not None}
    return [None, *sorted({ceil(score * 10_000) / 10_000 for score in scores})]


def bound_wrong(answers: Iterable[Stated], max_wrong: float) -> Refusals:
    """Return the lowest threshold that states a wrong answer to at most ``max_wrong`` of questions.

    Conformal risk control (Angelopoulos et al., 2024, Theorem 1): if a new question is exchangeable
    with the n labelled ones, the expected loss of what the threshold states is at most
    ``max_wrong``, in (0, 1). A question's loss never rises with the threshold and is at most B = 1,
    so the lowest threshold whose mean loss R satisfies (n R + B) / (n + 1) <= ``max_wrong`` will
    do. It is rounded up to four decimals, and states nothing if nothing less is safe.

    Raises:
        BadArgument: ``max_wrong`` is out of range, or there are too few questions for it.
    """
    rows = list(answers)
    if not 0 < max_wrong < 1:
        raise BadArgument(f"max_wrong must be above 0 and below 1, got {max_wrong}")
    allowed = max_wrong * (len(rows) + 1) - 1 + 1e-9  # rounding does not forbid a whole answer
    if allowed < 0:
        needed = ceil(1 / max_wrong - 1e-9) - 1
        raise BadArgument(
            f"max_wrong={max_wrong} needs at least {needed} labelled questions, got {len(rows)}: "
            "add some, or allow more wrong answers"
        )
    found = (measure_refusals(rows, threshold) for threshold in refusal_thresholds(rows))
    return next(each for each in found if each.wrong <= allowed)
