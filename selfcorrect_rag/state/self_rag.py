"""The state of Self-RAG: TypedDicts of JSON values and Documents."""

from typing import Any, Literal

from typing_extensions import TypedDict

from selfcorrect_rag.reflection import Reflection, Term
from selfcorrect_rag.state.common import Input, Output, TurnState, blank_common
from selfcorrect_rag.state.costs import Usage
from selfcorrect_rag.state.documents import Documents

Step = Literal["retrieve", "continue", "none"]
"""How a segment begins: with a new passage, with the previous segment's passage, or without one."""

Source = Literal["passages", "knowledge"]
"""State key of the texts that segments are written from."""


class Piece(TypedDict):
    """A piece of generated output: one control token, or text."""

    kind: Literal["control", "text"]
    text: str


class Segment(TypedDict):
    """A model's output up to the next retrieval token, the end of text or the token limit."""

    text: str
    """Without control tokens, stripped."""
    pieces: list[Piece]
    """The full output in order, with control tokens apart from text."""
    reflections: list[Reflection]
    next: Reflection | None
    """The retrieval token that ended the segment; it is not among ``pieces``."""
    finish_reason: Literal["end", "retrieval", "length", "stop", "pruned"]
    tokens: int
    logprob: float | None
    """Sum of the natural log-probabilities of the ``tokens``; None where a provider gives none."""
    prompt_tokens: int
    shortened: int
    """Prompt tokens cut so that the prompt fits the model's context."""
    requests: int
    """Requests sent to a provider for it; 0 where the whole batch was one call."""


class Candidate(TypedDict):
    """A segment for one passage, with its critique."""

    depth: int
    """Position in the answer, from 0."""
    beam: int
    """Index of the beam that it continues."""
    parent: int | None
    """Index into ``candidates`` of the beam's last candidate; None for a first segment."""
    step: Step
    passage: int | None
    """Index into ``passages``."""
    text: str
    pieces: list[Piece]
    judgements: dict[str, dict[str, float]]
    """Group to token to probability, normalised over the group."""
    critique: dict[str, float | None]
    """Score by reflection group, for every group that the model has: ISREL and ISSUP in [0, 1],
    ISUSE in [-1, 1]; None where the model gave no such token."""
    sequence_probability: float | None
    """None where a provider gives no log-probabilities."""
    hard: list[str]
    """The groups for which a chat model gave only a label, without probabilities."""
    score: float
    """Score of this segment alone, Eq. 3."""
    terms: list[Term]
    """What ``score`` sums, each with its weight."""
    path_score: float
    """Score of the beam that ends with it; beams are compared by it."""
    path_rule: str
    """The rule that made it: mean, sum or product."""
    path_terms: list[float]
    """The segment scores that the rule combined."""
    next: Step | None
    """The next step that the model asks for; None where it has finished."""
    finish_reason: str
    dropped: str | None
    """Why it may not be chosen: a hard constraint, pruning, or no text."""
    chosen: bool
    """Whether it is part of the answer."""


class Beam(TypedDict):
    """A partial answer: segments, and the passages for its next one."""

    segments: list[Candidate]
    score: float
    next: Step | None
    """None where the beam has ended."""
    cut: str | None
    """Why it ended before the model finished it; None if the model did."""
    retrieved: list[int]
    """The passages that its next segment may read, best first."""


class Decision(TypedDict):
    """Whether to retrieve before the first segment, and why."""

    retrieve: bool
    probability: float | None
    """P(Retrieval) / (P(Retrieval) + P(No Retrieval)); None where the model was not asked."""
    threshold: float | None
    mode: str


class SelfRAGInput(Input, total=False):
    """Give ``question``, or ``messages`` that end with a human message."""


class SelfRAGOutput(Output, total=False):
    """The answer, and the intermediate results."""

    cited_answer: str
    """The answer with ``[n]`` after each segment that was generated from a passage."""
    candidates: list[Candidate]
    """Every candidate of every step."""
    passages: Documents
    """Every passage retrieved or given, in the order of retrieval."""
    retrieval: Decision
    options: dict[str, float]
    """For closed sets: the summed score of each answer, best first."""
    score: float | None
    """Path score of the answer."""
    constraints_met: bool
    """False where every candidate broke a hard constraint and the best of them was used anyway."""
    usage: Usage


class SelfRAGState(SelfRAGInput, SelfRAGOutput, TurnState, total=False):
    """The whole state, including the nodes' internal keys."""

    beams: list[Beam]
    depth: int
    """Segments written so far on the longest beam."""


def blank_self_rag() -> dict[str, Any]:
    """The initial state of a turn of Self-RAG."""
    return {
        **blank_common(),
        "cited_answer": "",
        "candidates": [],
        "beams": [],
        "depth": 0,
        "options": {},
        "score": None,
        "constraints_met": True,
        "usage": Usage(
            model_calls=0,
            prompts=0,
            prompt_tokens=0,
            generated_tokens=0,
            retrievals=0,
            pruned=0,
            tokens_saved=0,
        ),
    }
