"""Reflection tokens, their groups, and what their log-probabilities are worth.

Pure Python, and the one place that knows the vocabulary of Self-RAG (Table 1), the retrieval
rule (A.3) and the segment score (Eq. 3-4, A.3). Everything here works on *log-probabilities*;
every ratio is taken between probabilities.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple, NotRequired

from typing_extensions import TypedDict


class Group(StrEnum):
    """A type of reflection token (Self-RAG, Table 1)."""

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

TOKENS: Mapping[Group, tuple[str, ...]] = {
    Group.RETRIEVE: (NO_RETRIEVAL, RETRIEVAL, CONTINUE),
    Group.ISREL: (IRRELEVANT, RELEVANT),
    Group.ISSUP: (FULLY_SUPPORTED, PARTIALLY_SUPPORTED, NO_SUPPORT),
    Group.ISUSE: UTILITY,
}
"""The tokens of each group."""

REFLECTION_TOKENS: tuple[str, ...] = tuple(token for group in TOKENS.values() for token in group)
"""The thirteen tokens that carry a judgement."""

CONTROL_TOKENS: tuple[str, ...] = (
    *TOKENS[Group.RETRIEVE],
    *TOKENS[Group.ISREL],
    PARAGRAPH,
    END_PARAGRAPH,
    *UTILITY,
    *TOKENS[Group.ISSUP],
)
"""The fifteen tokens added to a model's vocabulary, in the order in which checkpoints add them."""

GROUP_OF: Mapping[str, Group] = {
    token: group for group, tokens in TOKENS.items() for token in tokens
}
"""The group that a reflection token belongs to."""


class Reflection(TypedDict):
    """One reflection token that a model gave, with what it thought of the whole group."""

    group: str
    """Value of :class:`Group`."""
    position: int
    """Index of the token among the generated ones, from 0."""
    token: str
    """The token that was chosen."""
    logprobs: dict[str, float]
    """Natural log-probability of each token of the group under the full vocabulary, <= 0."""
    prompted: NotRequired[Literal["soft", "hard"]]
    """That a prompt asked for the token, as a label in text: of a model that gave probabilities of
    its labels, or of one that only named one, which then has 0 and each other -100."""


class Critique(TypedDict):
    """The critique scores of one segment; None where the model gave no such token."""

    isrel: float | None
    """In [0, 1]."""
    issup: float | None
    """In [0, 1]."""
    isuse: float | None
    """In [-1, 1]."""


@dataclass(frozen=True)
class Weights:
    """The weight of each term of Eq. 3-4. ``sequence`` weighs p(y_t|x,d,y_<t), 1 in the paper."""

    isrel: float = 1.0
    issup: float = 1.0
    isuse: float = 0.5
    sequence: float = 1.0


class ScoredSegment(NamedTuple):
    """One segment of a path, as path scores see it."""

    critique: Critique
    sequence: float | None
    """p(y_t|x,d,y_<t); None where the model gave none."""
    retrieved: bool
    """Whether it was written from a passage retrieved for it. A segment that keeps the passage
    before, or goes without, is asked for no judgement of one."""


PATH_RULES = ("mean", "sum", "product")


def is_readable(reflection: Reflection) -> bool:
    """Whether its log-probabilities say something: none is NaN or infinite, and one is finite.

    Minus infinity is a probability of 0. A retrieval token is read for [Retrieval] against
    [No Retrieval], so one of these two must be finite.
    """
    logprobs = reflection["logprobs"]
    if any(math.isnan(value) or value == math.inf for value in logprobs.values()):
        return False
    is_retrieve = reflection["group"] == Group.RETRIEVE
    tokens = (RETRIEVAL, NO_RETRIEVAL) if is_retrieve else tuple(logprobs)
    return any(math.isfinite(logprobs[token]) for token in tokens)


def probabilities(logprobs: Mapping[str, float]) -> dict[str, float]:
    """Normalise log-probabilities over their group: values in [0, 1] that sum to 1.

    Raises:
        ValueError: no token of the group has a finite log-probability.
    """
    top = max(logprobs.values(), default=-math.inf)
    if not math.isfinite(top):
        raise ValueError(f"no finite log-probability among {list(logprobs)}")
    weights = {token: math.exp(value - top) for token, value in logprobs.items()}
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def retrieval_probability(reflection: Reflection) -> float:
    """P(Retrieval) / (P(Retrieval) + P(No Retrieval)), in [0, 1] (A.3, adaptive retrieval)."""
    pair = {token: reflection["logprobs"][token] for token in (RETRIEVAL, NO_RETRIEVAL)}
    return probabilities(pair)[RETRIEVAL]


_VALUES: Mapping[Group, Mapping[str, float]] = {
    Group.ISREL: {RELEVANT: 1.0, IRRELEVANT: 0.0},
    Group.ISSUP: {FULLY_SUPPORTED: 1.0, PARTIALLY_SUPPORTED: 0.5, NO_SUPPORT: 0.0},
    Group.ISUSE: dict(zip(UTILITY, (-1.0, -0.5, 0.0, 0.5, 1.0), strict=True)),
}


def critique_score(reflection: Reflection) -> float:
    """The score s of one critique token (A.3): the expected value of its group."""
    values = _VALUES[Group(reflection["group"])]
    return math.fsum(values[t] * p for t, p in probabilities(reflection["logprobs"]).items())


def critique(reflections: Iterable[Reflection]) -> Critique:
    """Score a segment by the first reflection of each critique group.

    A judgement that is absent, or that :func:`is_readable` does not find readable, is None.
    """
    scores: dict[str, float] = {}
    for reflection in reflections:
        group = reflection["group"]
        if group != Group.RETRIEVE and group not in scores and is_readable(reflection):
            scores[group] = critique_score(reflection)
    return Critique(
        isrel=scores.get(Group.ISREL),
        issup=scores.get(Group.ISSUP),
        isuse=scores.get(Group.ISUSE),
    )


def sequence_probability(logprob: float | None, tokens: int) -> float | None:
    """p(y_t|x,d,y_<t) of Eq. 3 as the geometric mean over the segment's tokens, in [0, 1].

    Args:
        logprob: sum of the log-probabilities of all tokens of the segment; None where the model
            gave none, and then p is absent too, as it is where this is NaN or infinite.
        tokens: how many there are. The mean keeps long segments from losing by length alone; the
            paper writes a bare p, its code takes this mean.
    """
    if logprob is None or math.isnan(logprob) or logprob == math.inf:
        return None
    return min(math.exp(logprob / max(tokens, 1)), 1.0)  # rounding can lift it above 1


def segment_score(scores: Critique, sequence: float | None, weights: Weights) -> float:
    """f(y_t, d, Critique) of Eq. 3-4.

    This is the one place that says what absence does: **a critique that the model did not give
    adds nothing**. For ISREL and ISSUP that is also what the worst judgement adds, because
    silence is no support; for ISUSE, which a model gives once at the end of its output, it is
    neither praise nor blame. A probability that it did not give is absent for all its segments.
    """
    return (
        weights.sequence * (sequence or 0.0)
        + weights.isrel * (scores["isrel"] or 0.0)
        + weights.issup * (scores["issup"] or 0.0)
        + weights.isuse * (scores["isuse"] or 0.0)
    )


def path_score(segments: Sequence[ScoredSegment], weights: Weights, rule: str) -> float:
    """Score a path of several segments.

    The paper scores segments and does not say how the scores of a path add up. By every rule the
    candidates for one segment of one path are ordered as Eq. 3-4 order them, except by
    ``product`` where the product before is not positive.

    ``mean``, the default, is the mean of the segment scores. A segment that was written from no
    passage of its own (``[Continue to Use Evidence]``, ``[No Retrieval]``) takes the path's means
    so far for the ISREL and ISSUP that nobody asked for. Segments before the first retrieved one
    are left out once there is one: all paths of an answer share them. ``sum`` adds the segment
    scores: longer paths win. ``product`` multiplies them, as the official code does. With one
    segment the three are equal, with none the score is 0.

    Raises:
        ValueError: ``rule`` is none of the three.
    """
    if not segments:
        return 0.0
    match rule:
        case "sum":
            return math.fsum(segment_score(s.critique, s.sequence, weights) for s in segments)
        case "product":
            return math.prod(segment_score(s.critique, s.sequence, weights) for s in segments)
        case "mean":
            each = _averaged(segments, weights)
            return math.fsum(each) / len(each)
        case _:
            raise ValueError(f"path rule {rule!r} is none of {', '.join(PATH_RULES)}")


def best_path_score(
    segments: Sequence[ScoredSegment], further: int, weights: Weights, rule: str
) -> float:
    """The highest score that a path can have once it ends, at most ``further`` segments on.

    No segment scores above the sum of the weights, and ISUSE, which is given at the end, counts
    once. A path whose best is no better than a finished one's score need not be continued.
    """
    most = weights.sequence + weights.isrel + weights.issup
    match rule:
        case "sum":
            return path_score(segments, weights, rule) + further * most + weights.isuse
        case "product":
            before = path_score(segments, weights, rule)
            if before < 0:  # a negative score to come would turn it
                return math.inf
            return before * max(1.0, most) ** (further - 1) * max(1.0, most + weights.isuse)
        case _:
            is_judged = any(segment.retrieved for segment in segments)
            each = _averaged(segments, weights) if is_judged else []
            return max(
                (math.fsum(each) + more * most + weights.isuse) / (len(each) + more)
                for more in range(1, further + 1)
            )


def _averaged(segments: Sequence[ScoredSegment], weights: Weights) -> list[float]:
    """The segment scores that rule ``mean`` averages."""
    first = next((i for i, segment in enumerate(segments) if segment.retrieved), 0)
    isrel: list[float] = []
    issup: list[float] = []
    each: list[float] = []
    for segment in segments[first:]:
        scores = segment.critique
        isrel.append(_or_mean(scores["isrel"], isrel, segment.retrieved))
        issup.append(_or_mean(scores["issup"], issup, segment.retrieved))
        judged = Critique(isrel=isrel[-1], issup=issup[-1], isuse=scores["isuse"])
        each.append(segment_score(judged, segment.sequence, weights))
    return each


def _or_mean(score: float | None, before: Sequence[float], retrieved: bool) -> float:
    """The score, or where it is absent 0 for a retrieved passage and the mean so far for none."""
    if score is not None:
        return score
    return 0.0 if retrieved or not before else math.fsum(before) / len(before)
