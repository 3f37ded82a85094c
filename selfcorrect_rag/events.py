"""Events of a run on the custom stream: JSON objects, told apart by ``event``.

``graph.stream(..., stream_mode="custom")`` gives them in the order in which things happen.
"""

from typing import Literal

from typing_extensions import TypedDict

from selfcorrect_rag.settings import Mode
from selfcorrect_rag.state import Grade, Stop
from selfcorrect_rag.thresholds import Action


class FollowUpRewritten(TypedDict):
    event: Literal["follow_up_rewritten"]
    original_question: str
    question: str


class RetrievalDecided(TypedDict):
    event: Literal["retrieval_decided"]
    retrieve: bool
    probability: float | None
    threshold: float | None
    mode: str


class Retrieved(TypedDict):
    event: Literal["retrieved"]
    query: str
    passages: list[str]
    """Titles, best first; the first 60 characters of those without."""


class RetrievalFailure(TypedDict):
    event: Literal["retrieval_failed"]
    reason: str


class CandidateScored(TypedDict):
    event: Literal["candidate_scored"]
    depth: int
    beam: int
    passage: int | None
    text: str
    critique: dict[str, float | None]
    """Score by reflection group; None if the model gave no such token."""
    score: float


class SegmentChosen(TypedDict):
    event: Literal["segment_chosen"]
    text: str
    """The last segment of the best beam."""
    passage: int | None
    score: float
    answer: str
    """The text of all its segments; another beam may still win."""
    settled: int
    """Number of first segments shared by all beams, which are final."""


class Graded(TypedDict):
    event: Literal["graded"]
    grades: list[Grade]
    action: Action
    upper: float
    lower: float


class StripsKept(TypedDict):
    event: Literal["strips", "web_strips"]
    strips: int
    kept: int


class QueryRewritten(TypedDict):
    event: Literal["query_rewritten"]
    query: str


class WebSearched(TypedDict):
    event: Literal["web_searched"]
    query: str
    source: str
    """Name of the search."""
    results: list[str]
    """Titles, or addresses of pages without one."""


class WebSearchFailure(TypedDict):
    event: Literal["web_search_failed"]
    query: str
    source: str
    reason: str


class KnowledgeRecomposed(TypedDict):
    event: Literal["knowledge"]
    internal: int
    external: int


class DemonstrationsChosen(TypedDict):
    event: Literal["demonstrations_chosen"]
    questions: list[str]


class Dropped(TypedDict):
    event: Literal["dropped"]
    what: Literal["documents", "demonstrations"]
    number: int
    limit: int
    """In tokens."""


class RationaleWritten(TypedDict):
    event: Literal["rationale_written"]
    text: str
    mode: Mode
    documents: int
    """How many were shown."""


class Stopped(TypedDict):
    event: Literal["stopped"]
    by: Stop
    note: str
    """The step taken instead."""


class Answered(TypedDict):
    event: Literal["answered"]
    answer: str
    citations: int
