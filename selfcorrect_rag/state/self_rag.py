"""The state of Self-RAG: TypedDicts of JSON values and Documents."""

from typing import Any, Literal

from typing_extensions import TypedDict

from selfcorrect_rag.reflection import Reflection
from selfcorrect_rag.state.common import Input, Output, TurnState, blank_common
from selfcorrect_rag.state.costs import Usage
from selfcorrect_rag.state.documents import Documents

Step = Literal["retrieve", "continue", "none"]
"""How a segment begins: with a new passage, with the passage of the segment before, without."""

Source = Literal["passages", "knowledge"]
"""Where in the state a graph keeps what its segments are written from."""


class Piece(TypedDict):
    """A stretch of generated output: one control token, or text."""

    kind: Literal["control", "text"]
    text: str


class Segment(TypedDict):
    """The text that a model wrote in one go, up to the next retrieval token, its end or its
    limit."""

    text: str
    """Without control tokens, stripped."""
    pieces: list[Piece]
    """The same in full and in order, with control tokens kept apart from text."""
    reflections: list[Reflection]
    next: Reflection | None
    """The retrieval token that ended the segment; it is not among ``pieces``."""
    finish_reason: Literal["end", "retrieval", "length", "stop", "pruned"]
    tokens: int
    logprob: float | None
    """Sum of the natural log-probabilities of the ``tokens``; None where a provider gives none."""
    prompt_tokens: int
    shortened: int
    """Prompt tokens cut away so that the prompt fits the model's context."""
    requests: int
    """Requests to a provider that it took; 0 where a backend took the whole batch as one call."""


class Candidate(TypedDict):
    """A segment for one passage, with its critique."""

    depth: int
    """Which segment of the answer this is, from 0."""
    beam: int
    """Index of the beam that it continues."""
    parent: int | None
    """The candidate that this beam ends with, as an index into ``candidates``; None at first."""
    step: Step
    passage: int | None
    """Index into ``passages``."""
    text: str
    pieces: list[Piece]
    judgements: dict[str, dict[str, float]]
    """Group to token to probability, normalised over the group."""
    critique: dict[str, float | None]
    """Score by reflection group, of every group that the model has: ISREL and ISSUP in [0, 1],
    ISUSE in [-1, 1]; None where the model gave no such token."""
    sequence_probability: float | None
    """None where a provider gives no log-probabilities."""
    hard: list[str]
    """The groups of which a chat model only named a label, without probabilities."""
    score: float
    """Score of this segment alone, Eq. 3."""
    path_score: float
    """Score of the beam that ends with it; beams are compared by it."""
    next: Step | None
    """How the model wants to go on; None where it has finished."""
    finish_reason: str
    dropped: str | None
    """Why it may not be chosen: a hard constraint, pruning, or no text."""
    chosen: bool
    """Whether it is part of the answer."""


class Beam(TypedDict):
    """A partial answer: its own segments, with the passages they point at."""

    segments: list[Candidate]
    score: float
    next: Step | None
    """None where the beam has ended."""
    cut: str | None
    """Why it ended before the model finished it; None where that did not happen."""
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
    """The answer, and everything that led to it."""

    cited_answer: str
    """The answer with ``[n]`` after each segment that was generated from a passage."""
    candidates: list[Candidate]
    """Every candidate of every step."""
    passages: Documents
    """Every passage retrieved or given, in the order of retrieval."""
    retrieval: Decision
    options: dict[str, float]
    """Closed-set questions: the summed score of each answer, best first."""
    score: float | None
    """Path score of the answer."""
    constraints_met: bool
    """False where every candidate broke a hard constraint and the best of them was given."""
    usage: Usage


class SelfRAGState(SelfRAGInput, SelfRAGOutput, TurnState, total=False):
    """The whole state, with what only the nodes need."""

    beams: list[Beam]
    depth: int
    """Segments written so far on the longest beam."""


def blank_self_rag() -> dict[str, Any]:
    """A turn of Self-RAG before anything has happened."""
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
