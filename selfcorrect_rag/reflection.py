"""Reflection tokens, their groups, and what their log-probabilities are worth.

Pure Python, and the one place that knows the vocabulary of Self-RAG (Table 1), the retrieval
rule (A.3) and the segment score (Eq. 3-4, A.3). Everything here works on *log-probabilities*;
every ratio is taken between probabilities.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NotRequired

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


PATH_RULES = ("mean", "sum", "product")


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
    """Score a segment by the first reflection of each critique group; absent stays None."""
    scores: dict[str, float] = {}
    for reflection in reflections:
        if reflection["group"] != Group.RETRIEVE and reflection["group"] not in scores:
            scores[reflection["group"]] = critique_score(reflection)
    return Critique(
        isrel=scores.get(Group.ISREL),
        issup=scores.get(Group.ISSUP),
        isuse=scores.get(Group.ISUSE),
    )


def sequence_probability(logprob: float | None, tokens: int) -> float | None:
    """p(y_t|x,d,y_<t) of Eq. 3 as the geometric mean over the segment's tokens, in [0, 1].

    Args:
        logprob: sum of the log-probabilities of all tokens of the segment; None where the model
            gave none, and then p is absent too.
        tokens: how many there are. The mean keeps long segments from losing by length alone; the
            paper writes a bare p, its code takes this mean.
    """
    return None if logprob is None else math.exp(logprob / max(tokens, 1))


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


def path_score(
    segments: Sequence[tuple[Critique, float | None]], weights: Weights, rule: str
) -> float:
    """Score a beam of several segments, each a critique and a sequence probability.

    The paper scores segments and is silent on how a path adds up. ``mean``, the default, is
    Eq. 3-4 over the path's means: each term is averaged over the segments in which the model
    gave it, so that neither length nor a segment without critique (``[Continue to Use
    Evidence]``) moves the score, and ISUSE, given once, counts once and whole. ``sum`` adds the
    segment scores: longer paths win. ``product`` multiplies them, as the official code does; it
    is only meaningful while all are positive. With one segment the three are equal, with none 0.

    Raises:
        ValueError: ``rule`` is none of the three.
    """
    if not segments:
        return 0.0
    each = [segment_score(scores, sequence, weights) for scores, sequence in segments]
    match rule:
        case "sum":
            return math.fsum(each)
        case "product":
            return math.prod(each)
        case "mean":
            means = Critique(
                isrel=_mean(scores["isrel"] for scores, _ in segments),
                issup=_mean(scores["issup"] for scores, _ in segments),
                isuse=_mean(scores["isuse"] for scores, _ in segments),
            )
            return segment_score(means, _mean(p for _, p in segments), weights)
        case _:
            raise ValueError(f"path rule {rule!r} is none of {', '.join(PATH_RULES)}")


def _mean(values: Iterable[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return math.fsum(given) / len(given) if given else None
