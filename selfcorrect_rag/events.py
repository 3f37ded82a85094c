"""Events of a run on the custom stream: JSON objects, told apart by ``event``.

``graph.stream(..., stream_mode="custom")`` gives them in the order in which things happen.
"""

from typing import Literal

from typing_extensions import TypedDict

from selfcorrect_rag.settings import Mode
from selfcorrect_rag.state import Grade, Stop
from selfcorrect_rag.thresholds import Action


class FollowUpRewritten(TypedDict):
    """A follow-up question was rewritten as a standalone one."""

    event: Literal["follow_up_rewritten"]
    original_question: str
    """The user's own words."""
    question: str


class RetrievalDecided(TypedDict):
    """Self-RAG: whether the first segment gets evidence, as in the state's ``retrieval``."""

    event: Literal["retrieval_decided"]
    retrieve: bool
    probability: float | None
    threshold: float | None
    mode: str


class Retrieved(TypedDict):
    """Passages were found, or taken from the caller."""

    event: Literal["retrieved"]
    query: str
    passages: list[str]
    """Their titles, best first; without a title, the first 60 characters."""


class RetrievalFailure(TypedDict):
    """The retriever raised; the run goes on without documents."""

    event: Literal["retrieval_failed"]
    reason: str


class CandidateScored(TypedDict):
    """Self-RAG: a segment was written for a passage, and criticised."""

    event: Literal["candidate_scored"]
    depth: int
    beam: int
    passage: int | None
    text: str
    critique: dict[str, float | None]
    """Score by reflection group; None where the model gave no such token."""
    score: float


class SegmentChosen(TypedDict):
    """Self-RAG: the best partial answer after a segment was written on every beam."""

    event: Literal["segment_chosen"]
    text: str
    """Its last segment."""
    passage: int | None
    score: float
    """Path score."""
    answer: str
    """The text of all its segments. Another beam may still win, so show it in place of the last
    event's answer."""
    settled: int
    """Number of first segments shared by all beams, which are final."""


class Graded(TypedDict):
    """CRAG: the documents were scored, and the scores triggered an action."""

    event: Literal["graded"]
    grades: list[Grade]
    action: Action
    upper: float
    lower: float


class StripsKept(TypedDict):
    """CRAG: documents, or pages of the web, were cut into strips and the best were kept."""

    event: Literal["strips", "web_strips"]
    strips: int
    kept: int


class QueryRewritten(TypedDict):
    """CRAG: the query for the web search."""

    event: Literal["query_rewritten"]
    query: str


class WebSearched(TypedDict):
    """CRAG: the web search returned pages."""

    event: Literal["web_searched"]
    query: str
    source: str
    """Name of the search."""
    results: list[str]
    """Titles, or addresses of pages without one."""


class WebSearchFailure(TypedDict):
    """CRAG: the web search returned nothing; the run goes on without pages."""

    event: Literal["web_search_failed"]
    query: str
    source: str
    reason: str
    """An error, a refused approval, or that nothing was found."""


class KnowledgeRecomposed(TypedDict):
    """CRAG: how many pieces of knowledge are internal and how many external."""

    event: Literal["knowledge"]
    internal: int
    external: int


class DemonstrationsChosen(TypedDict):
    """InstructRAG: the questions of the demonstrations that are shown."""

    event: Literal["demonstrations_chosen"]
    questions: list[str]


class Dropped(TypedDict):
    """InstructRAG: documents or demonstrations were dropped to fit the model's context."""

    event: Literal["dropped"]
    what: Literal["documents", "demonstrations"]
    number: int
    limit: int
    """In tokens."""


class RationaleWritten(TypedDict):
    """InstructRAG: the model's whole output."""

    event: Literal["rationale_written"]
    text: str
    mode: Mode
    documents: int
    """Number of documents that it was shown."""


class Cached(TypedDict):
    """A node's result came from the cache; its own events are not sent."""

    event: Literal["cached"]
    node: str


class Stopped(TypedDict):
    """A limit, or a fault, prevented a step or part of one."""

    event: Literal["stopped"]
    by: Stop
    note: str
    """The step taken instead."""


class Answered(TypedDict):
    """The run is over."""

    event: Literal["answered"]
    answer: str
    citations: int


Event = (
    FollowUpRewritten
    | RetrievalDecided
    | Retrieved
    | RetrievalFailure
    | CandidateScored
    | SegmentChosen
    | Graded
    | StripsKept
    | QueryRewritten
    | WebSearched
    | WebSearchFailure
    | KnowledgeRecomposed
    | DemonstrationsChosen
    | Dropped
    | RationaleWritten
    | Cached
    | Stopped
    | Answered
)
