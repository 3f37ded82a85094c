"""Reflection tokens in one table of groups, and what their log-probabilities are worth.

Pure Python, and the one place that knows the vocabulary of Self-RAG (Table 1), the retrieval
rule (A.3) and the segment score (Eq. 3-4, A.3). Everything here works on *log-probabilities*;
every ratio is taken between probabilities. :func:`register_group` adds a custom group.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple, NotRequired

from typing_extensions import TypedDict


class Group(StrEnum):
    """Names of the paper's groups (Self-RAG, Table 1)."""

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


@dataclass(frozen=True)
class ReflectionGroup:
    """One entry of the table: a judgement that a model gives as one of a few tokens."""

    name: str
    tokens: tuple[str, ...]
    """At least two, each in brackets, such as ``[Clear]``; of no other group."""
    values: tuple[float, ...] = ()
    """Score of each token (A.3). Of the paper's groups only Retrieve, which decides, has none."""
    judges: Literal["passage", "segment", "answer"] = "segment"
    """``passage``: a segment for the passage that was retrieved for it; one that keeps its passage
    or goes without takes its path's mean. ``segment``: every segment. ``answer``: given once, at
    the end of the output."""
    weight: float = 1.0
    """Weight of its score in Eq. 4, at least 0, unless a run's settings set another."""
    absent: float = 0.0
    """Score of a judgement that the model did not give. About a passage it is no higher than the
    worst judgement: a missing one counts as no support."""
    instruction: str = ""
    """Asks a chat model, which has no such tokens, for one of them; without, it is not asked. The
    paper's groups have the prompts of its appendix D instead."""

    @cached_property
    def scores(self) -> Mapping[str, float]:
        """Score by token; empty for Retrieve."""
        return dict(zip(self.tokens, self.values, strict=bool(self.values)))


_groups: dict[str, ReflectionGroup] = {}
_tokens: dict[str, tuple[str, ...]] = {}
_group_of: dict[str, str] = {}

GROUPS: Mapping[str, ReflectionGroup] = MappingProxyType(_groups)
"""Every registered group by its name, the paper's four first."""
TOKENS: Mapping[str, tuple[str, ...]] = MappingProxyType(_tokens)
"""The tokens of each registered group."""
GROUP_OF: Mapping[str, str] = MappingProxyType(_group_of)
"""Name of the group that a reflection token belongs to."""


def register_group(group: ReflectionGroup) -> ReflectionGroup:
    """Add a group of reflection tokens to the table, before models and graphs are made.

    A checkpoint has the group if its vocabulary has the tokens, and a chat model if the entry has
    an ``instruction``. Candidates, events and pages then show its score, beams are ranked by it,
    and ``group_weights`` of a run's settings weighs it. To train a model on it, write a token of
    the group behind the segment that it judges, or at the end of the output. Registering an equal
    entry again changes nothing; one that is taken or makes no sense is a ValueError.
    """
    known = _groups.get(group.name)
    if known == group:
        return group
    if problem := "it is registered otherwise already" if known else _problem(group):
        raise ValueError(f"reflection group {group.name!r}: {problem}")
    _groups[group.name], _tokens[group.name] = group, group.tokens
    _group_of.update(dict.fromkeys(group.tokens, group.name))
    return group


def unregister_group(name: str) -> None:
    """Remove a group from the table, as at the end of a test; the paper's four stay."""
    if name in PAPER_GROUPS or name not in _groups:
        raise ValueError(f"reflection group {name!r} is the paper's, or is not registered")
    for token in _tokens.pop(name):
        del _group_of[token]
    del _groups[name]


def _problem(group: ReflectionGroup) -> str | None:
    """Why an entry cannot be registered."""
    tokens, values = group.tokens, group.values
    if not group.name.isidentifier():
        return "a name is one word of letters, digits and underscores"
    if len(tokens) < 2 or len(set(tokens)) < len(tokens):
        return "it needs two tokens or more, all of them different"
    for token in tokens:
        if not (re.fullmatch(r"\[[^\[\] ]([^\[\]]*[^\[\] ])?\]", token) and token.isprintable()):
            return f"{token!r} is not of the form [Word], on one line and without further brackets"
        if token in _group_of:
            return f"{token} belongs to {_group_of[token]}"
    if len(values) != len(tokens):
        return f"{len(tokens)} tokens need as many values, got {len(values)}"
    if not all(map(math.isfinite, (*values, group.weight, group.absent))) or group.weight < 0:
        return "values, weight and absent must be finite numbers, and the weight at least 0"
    if group.absent > (min if group.judges == "passage" else max)(values):
        return f"absent ({group.absent:g}) is better than a judgement that was given"
    return None


_SUPPORT = (FULLY_SUPPORTED, PARTIALLY_SUPPORTED, NO_SUPPORT)
for _group in (
    ReflectionGroup(Group.RETRIEVE.value, (NO_RETRIEVAL, RETRIEVAL, CONTINUE)),
    ReflectionGroup(Group.ISREL.value, (IRRELEVANT, RELEVANT), (0.0, 1.0), "passage"),
    ReflectionGroup(Group.ISSUP.value, _SUPPORT, (1.0, 0.5, 0.0), "passage"),
    # Given once, at the end of the output: its absence is neither praise nor blame.
    ReflectionGroup(Group.ISUSE.value, UTILITY, (-1.0, -0.5, 0.0, 0.5, 1.0), "answer", 0.5),
):
    _groups[_group.name], _tokens[_group.name] = _group, _group.tokens
    _group_of.update(dict.fromkeys(_group.tokens, _group.name))

PAPER_GROUPS: tuple[str, ...] = tuple(_groups)
"""Names of the groups that every checkpoint has whole."""

CONTROL_TOKENS: tuple[str, ...] = (
    *TOKENS[Group.RETRIEVE],
    *TOKENS[Group.ISREL],
    *(PARAGRAPH, END_PARAGRAPH),
    *TOKENS[Group.ISUSE],
    *TOKENS[Group.ISSUP],
)
"""The paper's fifteen control tokens, in the order in which checkpoints add them."""


def control_tokens() -> tuple[str, ...]:
    """Return the paper's control tokens, and then those of registered groups."""
    return (*CONTROL_TOKENS, *(token for group in registered_groups() for token in group.tokens))


def registered_groups() -> list[ReflectionGroup]:
    """Return the groups of :func:`register_group`, without the paper's."""
    return list(_groups.values())[len(PAPER_GROUPS) :]


class Reflection(TypedDict):
    """One reflection token that a model gave, with what it thought of the whole group."""

    group: str
    """Name of a registered group."""
    position: int
    """Index of the token among the generated ones, from 0."""
    token: str
    """The token that was chosen."""
    logprobs: dict[str, float]
    """Natural log-probability of each token of the group under the full vocabulary, <= 0."""
    prompted: NotRequired[Literal["soft", "hard"]]
    """Set if a prompt asked for the token, as a label in text: of a model that gave probabilities
    of its labels, or of one that only named one, which then has 0 and each other -100."""


Critique = Mapping[str, float | None]
"""Score of a segment by group, of all groups with values that its model has: for the paper's ISREL
and ISSUP in [0, 1], for ISUSE in [-1, 1]; None if the model did not give the judgement."""


@dataclass(frozen=True)
class Weights:
    """Weight of each term of Eq. 3-4."""

    sequence: float = 1.0
    """Weight of p(y_t|x,d,y_<t), 1 in the paper."""
    groups: Mapping[str, float] = field(default_factory=dict)
    """Weights by name of the group; the others have those of their entries."""

    def of(self, group: ReflectionGroup) -> float:
        """Return the weight of a group."""
        return self.groups.get(group.name, group.weight)


class Term(TypedDict):
    """One term of Eq. 3-4: ``weight * value`` is added to the score."""

    name: str
    """A group, or ``p(y)`` for the segment's own probability."""
    weight: float
    value: float
    """The probability, or the group's score; its ``absent`` if the model gave none."""


class ScoredSegment(NamedTuple):
    """One segment of a path, as path scores see it."""

    critique: Critique
    sequence: float | None
    """p(y_t|x,d,y_<t); None if the model gave none."""
    retrieved: bool
    """Whether it was written from a passage retrieved for it. A segment that keeps the passage
    before, or goes without, is asked for no judgement of one."""


PATH_RULES = ("mean", "sum", "product")
_ASKED = (RETRIEVAL, NO_RETRIEVAL)


def is_readable(reflection: Reflection) -> bool:
    """Return whether none of its log-probabilities is NaN or infinite, and one is finite; for a
    retrieval token, that of [Retrieval] or [No Retrieval]. Minus infinity is a probability of 0."""
    logprobs = reflection["logprobs"]
    for value in logprobs.values():
        if math.isnan(value) or value == math.inf:
            return False
    is_retrieve = reflection["group"] == Group.RETRIEVE
    asked = _ASKED if is_retrieve else logprobs
    return max((logprobs[token] for token in asked), default=-math.inf) > -math.inf


def probabilities(logprobs: Mapping[str, float]) -> dict[str, float]:
    """Normalise log-probabilities over their group: values in [0, 1] that sum to 1; ValueError if
    none is finite."""
    top = max(logprobs.values(), default=-math.inf)
    if not math.isfinite(top):
        raise ValueError(f"no finite log-probability among {list(logprobs)}")
    weights = {token: math.exp(value - top) for token, value in logprobs.items()}
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def retrieval_probability(reflection: Reflection) -> float:
    """Return P(Retrieval) / (P(Retrieval) + P(No Retrieval)), in [0, 1] (A.3)."""
    return probabilities({t: reflection["logprobs"][t] for t in _ASKED})[RETRIEVAL]


def critique_score(reflection: Reflection) -> float:
    """Return the score s of one critique token (A.3): the expected value of its group."""
    scores = GROUPS[reflection["group"]].scores
    return math.fsum(scores[t] * p for t, p in probabilities(reflection["logprobs"]).items())


def critique(
    reflections: Iterable[Reflection], groups: Sequence[str] = PAPER_GROUPS
) -> dict[str, float | None]:
    """Score a segment by the first readable reflection of each of the model's ``groups`` that have
    values; None without one."""
    scores: dict[str, float | None] = dict.fromkeys(n for n in groups if GROUPS[n].values)
    for reflection in reflections:
        group = reflection["group"]
        if group in scores and scores[group] is None and is_readable(reflection):
            scores[group] = critique_score(reflection)
    return scores


def sequence_probability(logprob: float | None, tokens: int) -> float | None:
    """Return p(y_t|x,d,y_<t) of Eq. 3 as the geometric mean over the segment's tokens, in [0, 1].

    ``logprob`` is the sum over its ``tokens``; if the model gave none, or it is NaN or infinite, p
    is None. The mean keeps long segments from losing by length alone; the paper writes a bare p,
    its code takes this mean.
    """
    if logprob is None or math.isnan(logprob) or logprob == math.inf:
        return None
    return min(math.exp(logprob / max(tokens, 1)), 1.0)  # rounding can lift it above 1


def segment_score(scores: Critique, sequence: float | None, weights: Weights) -> float:
    """Return f(y_t, d, Critique) of Eq. 3-4.

    A missing judgement counts as its group's ``absent``, a missing probability as 0.
    """
    terms = segment_terms(scores, sequence, weights)
    return sum(term["weight"] * term["value"] for term in terms)


def segment_terms(scores: Critique, sequence: float | None, weights: Weights) -> list[Term]:
    """Return the terms that :func:`segment_score` sums, p(y) first."""
    terms = [Term(name="p(y)", weight=weights.sequence, value=sequence or 0.0)]
    for group in _scored(scores):
        score = scores[group.name]
        value = group.absent if score is None else score
        terms.append(Term(name=group.name, weight=weights.of(group), value=value))
    return terms


def _scored(scores: Critique) -> list[ReflectionGroup]:
    """The groups of a critique, in the table's order."""
    return [group for name, group in _groups.items() if name in scores]


def path_score(segments: Sequence[ScoredSegment], weights: Weights, rule: str) -> float:
    """Score a path of several segments by one of PATH_RULES; 0 without a segment.

    The paper does not say how the scores of a path add up. By every rule the candidates for one
    segment of one path are ordered as Eq. 3-4 order them, except by ``product`` if the product
    before is not positive. ``mean``, the default, is the mean of the segment scores. A segment
    written from no passage of its own takes the path's means so far for judgements of a passage,
    for which nobody asked. Segments before the first retrieved one are left out once there is one:
    all paths share them. ``sum`` adds the scores, so longer paths win. ``product`` multiplies them,
    as the official code does.
    """
    return combined(path_terms(segments, weights, rule), rule)


def combined(each: Sequence[float], rule: str) -> float:
    """Return the score of a path whose segments have the scores of :func:`path_terms`."""
    if rule == "product":
        return math.prod(each) if each else 0.0
    return math.fsum(each) / (len(each) or 1 if rule == "mean" else 1)


def path_terms(segments: Sequence[ScoredSegment], weights: Weights, rule: str) -> list[float]:
    """Return the segment scores that :func:`path_score` averages, adds or multiplies."""
    if rule not in PATH_RULES:
        raise ValueError(f"path rule must be one of {', '.join(PATH_RULES)}, got {rule!r}")
    if rule == "mean":
        return _averaged(segments, weights)
    return [segment_score(s.critique, s.sequence, weights) for s in segments]


def best_path_score(
    segments: Sequence[ScoredSegment], further: int, weights: Weights, rule: str
) -> float:
    """Return the highest score that a path can have after at most ``further`` more segments.

    No segment scores above the sum of the weighted values; judgements of the answer count once, at
    the end. A path whose best is no better than a finished one's need not be continued.
    """
    most, at_end = weights.sequence, 0.0
    for group in _scored(segments[-1].critique if segments else critique([], list(GROUPS))):
        weight, absent = weights.of(group), abs(group.absent)
        # Without their signs, as two negative scores have a positive product.
        top = max(absent, *map(abs, group.values))
        if group.judges == "answer":  # absent from the segments before the end
            most, at_end = most + weight * absent, at_end + weight * (top - absent)
        else:
            most += weight * top
    if rule == "sum":
        return path_score(segments, weights, rule) + further * most + at_end
    if rule == "product":
        before = path_score(segments, weights, rule) if segments else 1.0
        if before < 0:  # a negative score to come would turn it
            return math.inf
        return before * max(1.0, most) ** (further - 1) * max(1.0, most + at_end)
    is_judged = any(segment.retrieved for segment in segments)
    each = _averaged(segments, weights) if is_judged else []
    return max(
        (math.fsum(each) + more * most + at_end) / (len(each) + more)
        for more in range(1, further + 1)
    )


def _averaged(segments: Sequence[ScoredSegment], weights: Weights) -> list[float]:
    """The segment scores that rule ``mean`` averages."""
    first = next((i for i, segment in enumerate(segments) if segment.retrieved), 0)
    before: dict[str, list[float]] = {}
    each: list[float] = []
    for segment in segments[first:]:
        scores = dict(segment.critique)
        for group in _scored(scores):
            if group.judges == "passage":
                path = before.setdefault(group.name, [])
                score = scores[group.name]
                if score is None:
                    is_asked = segment.retrieved or not path
                    score = group.absent if is_asked else math.fsum(path) / len(path)
                path.append(score)
                scores[group.name] = score
        each.append(segment_score(scores, segment.sequence, weights))
    return each
