"""Self-RAG's vocabulary (Table 1), its retrieval rule (A.3) and its scores (Eq. 3-4, A.3).

Models give log-probabilities; every ratio is taken between probabilities.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, NotRequired

from typing_extensions import TypedDict


class Group(StrEnum):
    """Names of the groups (Self-RAG, Table 1)."""

    RETRIEVE = "Retrieve"
    ISREL = "ISREL"
    ISSUP = "ISSUP"
    ISUSE = "ISUSE"


RETRIEVAL = "[Retrieval]"
NO_RETRIEVAL = "[No Retrieval]"
CONTINUE = "[Continue to Use Evidence]"
RELEVANT = "[Relevant]"
IRRELEVANT = "[Irrelevant]"
FULLY_SUPPORTED = "[Fully supported]"
PARTIALLY_SUPPORTED = "[Partially supported]"
NO_SUPPORT = "[No support / Contradictory]"
UTILITY = tuple(f"[Utility:{grade}]" for grade in range(1, 6))
PARAGRAPH = "<paragraph>"
END_PARAGRAPH = "</paragraph>"

VALUES: Mapping[str, Mapping[str, float]] = {
    "ISREL": {IRRELEVANT: 0.0, RELEVANT: 1.0},
    "ISSUP": {FULLY_SUPPORTED: 1.0, PARTIALLY_SUPPORTED: 0.5, NO_SUPPORT: 0.0},
    "ISUSE": dict(zip(UTILITY, (-1.0, -0.5, 0.0, 0.5, 1.0), strict=True)),
}
"""Score of each token of the groups that judge (A.3). A judgement that the model did not give
scores 0: of a passage the worst, of the answer neither praise nor blame."""
TOKENS: Mapping[str, tuple[str, ...]] = {
    "Retrieve": (NO_RETRIEVAL, RETRIEVAL, CONTINUE),
    **{group: tuple(values) for group, values in VALUES.items()},
}
"""The tokens of each group."""
GROUP_OF = {token: group for group, tokens in TOKENS.items() for token in tokens}
"""Name of the group that a reflection token belongs to."""
CONTROL_TOKENS: tuple[str, ...] = (
    *(NO_RETRIEVAL, RETRIEVAL, CONTINUE, IRRELEVANT, RELEVANT, PARAGRAPH, END_PARAGRAPH),
    *(*UTILITY, FULLY_SUPPORTED, PARTIALLY_SUPPORTED, NO_SUPPORT),
)
"""The paper's fifteen control tokens, in the order in which checkpoints add them."""
PATH_RULES = ("mean", "sum", "product")
_DECISION = (RETRIEVAL, NO_RETRIEVAL)


class Reflection(TypedDict):
    """One reflection token that a model gave, with what it thought of the whole group."""

    group: str
    position: int
    """Index of the token among the generated ones, from 0."""
    token: str
    """The token that was chosen."""
    logprobs: dict[str, float]
    """Natural log-probability of each token of the group under the full vocabulary, <= 0."""
    prompted: NotRequired[Literal["soft", "hard"]]
    """Set if a prompt asked for the token as a label in text: soft with the labels' probabilities,
    hard if one was only named, which then has 0 and each other -100."""


Critique = Mapping[str, float | None]
"""Score by judging group: ISREL and ISSUP in [0, 1], ISUSE in [-1, 1]; None without a token."""


class Weights(NamedTuple):
    """Weight of each term of Eq. 3-4."""

    sequence: float = 1.0
    """Weight of p(y_t|x,d,y_<t), 1 in the paper."""
    isrel: float = 1.0
    issup: float = 1.0
    isuse: float = 0.5


class Term(TypedDict):
    """One term of Eq. 3-4: ``weight * value`` is added to the score."""

    name: str
    """A group, or ``p(y)`` for the segment's own probability."""
    weight: float
    value: float
    """The probability, or the group's score; 0 if the model gave none."""


class ScoredSegment(NamedTuple):
    """One segment of a path, as path scores see it."""

    critique: Critique
    sequence: float | None
    """p(y_t|x,d,y_<t); None if the model gave none."""
    retrieved: bool
    """Whether it was written from a passage retrieved for it; else it is not asked to judge one."""


def is_readable(reflection: Reflection) -> bool:
    """Return whether none of its log-probabilities is NaN or infinite, and one is finite; for a
    retrieval token, that of [Retrieval] or [No Retrieval]. Minus infinity is a probability of 0."""
    logprobs = reflection["logprobs"]
    asked = _DECISION if reflection["group"] == "Retrieve" else logprobs
    is_valid = all(value < math.inf for value in logprobs.values())  # NaN is not
    return is_valid and any(logprobs[token] > -math.inf for token in asked)


def probabilities(logprobs: Mapping[str, float]) -> dict[str, float]:
    """Normalise log-probabilities over their group, to sum to 1; ValueError if none is finite."""
    top = max(logprobs.values(), default=math.nan)
    if not math.isfinite(top):
        raise ValueError(f"no finite log-probability among {list(logprobs)}")
    weights = {token: math.exp(value - top) for token, value in logprobs.items()}
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def retrieval_probability(reflection: Reflection) -> float:
    """Return P(Retrieval) / (P(Retrieval) + P(No Retrieval)), in [0, 1] (A.3)."""
    return probabilities({t: reflection["logprobs"][t] for t in _DECISION})[RETRIEVAL]


def judgements(reflections: Iterable[Reflection]) -> dict[str, dict[str, float]]:
    """Return the probabilities of the first of the readable ``reflections`` of each group."""
    found: dict[str, dict[str, float]] = {}
    for reflection in reflections:
        if reflection["group"] not in found:
            found[reflection["group"]] = probabilities(reflection["logprobs"])
    return found


def critique(reflections: Iterable[Reflection]) -> dict[str, float | None]:
    """Score a segment by the first readable reflection of each judging group."""
    return scores_of(judgements(filter(is_readable, reflections)))


def scores_of(judged: Mapping[str, Mapping[str, float]]) -> dict[str, float | None]:
    """Return the score s of each judging group (A.3), the expected value of its tokens under a
    segment's :func:`judgements`; None without one."""
    return {
        group: math.fsum(values[token] * p for token, p in judged[group].items())
        if group in judged
        else None
        for group, values in VALUES.items()
    }


def sequence_probability(logprob: float | None, tokens: int) -> float | None:
    """Return p(y_t|x,d,y_<t) of Eq. 3 in [0, 1]: the geometric mean over the segment's tokens.

    The official code does so too: long segments do not lose by length alone. ``logprob`` is the sum
    over its ``tokens``; without one, or with NaN or infinity, p is None.
    """
    if logprob is None or not logprob < math.inf:
        return None
    return min(math.exp(logprob / max(tokens, 1)), 1.0)  # rounding can lift it above 1


def segment_score(scores: Critique, sequence: float | None, weights: Weights) -> float:
    """Return f(y_t, d, Critique) of Eq. 3-4; what the model did not give counts as 0."""
    return sum(each["weight"] * each["value"] for each in segment_terms(scores, sequence, weights))


def segment_terms(scores: Critique, sequence: float | None, weights: Weights) -> list[Term]:
    """Return the terms that :func:`segment_score` sums, p(y) first."""
    terms = [Term(name="p(y)", weight=weights.sequence, value=sequence or 0.0)]
    for group, weight in zip(VALUES, weights[1:], strict=True):
        terms.append(Term(name=group, weight=weight, value=scores[group] or 0.0))
    return terms


def path_score(segments: Sequence[ScoredSegment], weights: Weights, rule: str) -> float:
    """Score a path of several segments by one of PATH_RULES; 0 without a segment.

    The paper does not say how the scores of a path add up. ``mean``, the default, is the mean of
    the segment scores. A segment written from no passage of its own takes the path's means so far
    for judgements of a passage, for which nobody asked. Segments before the first retrieved one are
    left out once there is one: all paths share them. ``sum`` adds the scores, so longer paths win.
    ``product`` multiplies them, as the official code does.
    """
    return join_terms(path_terms(segments, weights, rule), rule)


def join_terms(each: Sequence[float], rule: str) -> float:
    """Return the path score of the segment scores of :func:`path_terms`."""
    if rule == "product":
        return math.prod(each) if each else 0.0
    return math.fsum(each) / (max(len(each), 1) if rule == "mean" else 1)


def path_terms(segments: Sequence[ScoredSegment], weights: Weights, rule: str) -> list[float]:
    """Return the segment scores that :func:`path_score` averages, adds or multiplies."""
    if rule not in PATH_RULES:
        raise ValueError(f"path rule must be one of {', '.join(PATH_RULES)}, got {rule!r}")
    if rule != "mean":
        return [segment_score(s.critique, s.sequence, weights) for s in segments]
    first = next((i for i, segment in enumerate(segments) if segment.retrieved), 0)
    before: dict[str, list[float]] = {"ISREL": [], "ISSUP": []}
    each: list[float] = []
    for segment in segments[first:]:
        scores = dict(segment.critique)
        for group, path in before.items():
            score = scores[group]
            if score is None:
                is_asked = segment.retrieved or not path
                score = 0.0 if is_asked else math.fsum(path) / len(path)
            path.append(score)
            scores[group] = score
        each.append(segment_score(scores, segment.sequence, weights))
    return each


def best_path_score(
    segments: Sequence[ScoredSegment], further: int, weights: Weights, rule: str
) -> float:
    """Return the highest score that a path can have after at most ``further`` more segments.

    No segment scores above the sum of the weights; ISUSE counts once, at the end. A path whose best
    is no better than a finished one's need not be continued.
    """
    most, at_end = weights.sequence + weights.isrel + weights.issup, weights.isuse
    if rule == "sum":
        return path_score(segments, weights, rule) + further * most + at_end
    if rule == "product":
        before = path_score(segments, weights, rule) if segments else 1.0
        if before < 0:  # a negative score to come would turn it
            return math.inf
        return before * max(1.0, most) ** (further - 1) * max(1.0, most + at_end)
    is_judged = any(segment.retrieved for segment in segments)
    each = path_terms(segments, weights, rule) if is_judged else []
    return max(
        (math.fsum(each) + more * most + at_end) / (len(each) + more)
        for more in range(1, further + 1)
    )
