"""The state of CRAG and Self-CRAG: TypedDicts of JSON values and Documents."""

from typing import Any, Literal

from typing_extensions import TypedDict

from selfcorrect_rag.state.common import Input, Output, TurnState, blank_common
from selfcorrect_rag.state.documents import Documents
from selfcorrect_rag.state.self_rag import SelfRAGOutput, SelfRAGState
from selfcorrect_rag.thresholds import Action


class Grade(TypedDict):
    """The evaluator's score of one retrieved document."""

    document: int
    """Index into ``passages``."""
    title: str
    score: float
    """In [-1, 1]."""


class Strip(TypedDict):
    """A few sentences of a document, and whether they were kept."""

    document: int
    """Index into the documents that it was cut from: ``passages``, or ``web_results``."""
    text: str
    score: float | None
    """In [-1, 1]; None where the evaluator was not asked and all is kept."""
    kept: bool


Judged = Literal["relevant", "irrelevant"]
"""The evaluator's judgement of a piece of knowledge."""


class CRAGInput(Input, total=False):
    """Give ``question``, or ``messages`` that end with a human message."""


class Correction(TypedDict, total=False):
    """The keys of CRAG's correction of a retrieval."""

    passages: Documents
    """The retrieved or given documents."""
    grades: list[Grade]
    action: Action | None
    """None where no evidence was wanted, or a cost limit left no call for grading."""
    thresholds: dict[Literal["upper", "lower"], float]
    """The thresholds that chose the action; empty where there is none."""
    strips: list[Strip]
    """Strips of the retrieved documents, in the order of the text."""
    web_query: str
    """The query of the web search; empty without a search."""
    web_source: str
    """Name of the search, such as Tavily or a local corpus that replaces the web."""
    web_results: Documents
    web_strips: list[Strip]
    web_failure: str
    """Why the search returned nothing; empty if it succeeded or did not run."""
    knowledge: Documents
    """The documents that the answer is written from: internal first, then external."""
    judged: list[Judged | None]
    """The evaluator's judgement of each piece of ``knowledge``; None where nothing scored it.

    A piece is irrelevant if all its scores are below the lower threshold, or if it was used
    although all its strips were dropped.
    """


class CRAGOutput(Correction, Output, total=False):
    """The answer, and the intermediate results."""

    cited_answer: str
    """The answer with ``[n]`` where the model cites a piece of ``knowledge``, from 1."""


class CRAGState(CRAGInput, CRAGOutput, TurnState, total=False):
    """The whole state, including the nodes' internal keys."""

    branches: list[Literal["refine", "search"]]
    """The branches that the action, or the settings, ask for."""
    web_notes: list[str]
    """Notes on the pages, apart since a parallel step may write ``notes``."""
    approval: Literal["none", "wanted", "late"]
    """Whether a person must approve the search: no, set as the turn began, or set by a later
    context.

    Stored in the thread, so that no later context undoes it.
    """


class SelfCRAGOutput(SelfRAGOutput, CRAGOutput, total=False):
    """Both graphs' outputs; candidates and citations point into ``knowledge``."""


class SelfCRAGState(SelfRAGState, CRAGState, total=False):
    """The whole state of Self-CRAG."""


def blank_crag() -> dict[str, Any]:
    """The initial state of a turn of CRAG."""
    return {
        **blank_common(),
        "cited_answer": "",
        "grades": [],
        "action": None,
        "thresholds": {},
        "branches": [],
        "strips": [],
        "web_query": "",
        "web_source": "",
        "web_results": [],
        "web_strips": [],
        "web_failure": "",
        "web_notes": [],
        "knowledge": [],
        "judged": [],
    }
