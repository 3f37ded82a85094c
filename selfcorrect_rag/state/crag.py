"""The state of CRAG and Self-CRAG: TypedDicts of JSON values and Documents."""

from typing import Any, Literal

from typing_extensions import TypedDict

from selfcorrect_rag.state.common import Input, Output, TurnState, blank_common
from selfcorrect_rag.state.documents import Documents
from selfcorrect_rag.state.self_rag import SelfRAGOutput, SelfRAGState
from selfcorrect_rag.thresholds import Action


class Grade(TypedDict):
    """The evaluator's opinion of one retrieved document."""

    document: int
    """Index into ``passages``."""
    title: str
    score: float
    """In [-1, 1]."""


class Strip(TypedDict):
    """A few sentences of a document, and whether they became knowledge."""

    document: int
    """Index into the documents that it was cut from: ``passages``, or ``web_results``."""
    text: str
    score: float | None
    """In [-1, 1]; None where the evaluator was not asked and all is kept."""
    kept: bool


Judged = Literal["relevant", "irrelevant"]
"""Judgement of a piece of knowledge."""


class CRAGInput(Input, total=False):
    """Give ``question``, or ``messages`` that end with a human message."""


class Correction(TypedDict, total=False):
    """CRAG's correction of a retrieval, on the way to an answer."""

    passages: Documents
    """The retrieved or given documents."""
    grades: list[Grade]
    action: Action | None
    """None where no evidence was wanted, or a limit on the cost left no call for grading."""
    thresholds: dict[Literal["upper", "lower"], float]
    """Scores that the action was chosen by; empty where there is none."""
    strips: list[Strip]
    """Strips of the retrieved documents, in the order of the text."""
    web_query: str
    """The query of the web search; empty where it was not."""
    web_source: str
    """Who answered, such as Tavily or a local corpus that stands in for the web."""
    web_results: Documents
    web_strips: list[Strip]
    web_failure: str
    """Why a search gave nothing; empty where it did, or where there was none."""
    knowledge: Documents
    """The documents that the answer is written from: internal first, then external."""
    judged: list[Judged | None]
    """The evaluator's judgement of each piece of ``knowledge``; None where nothing scored it.

    Irrelevant is what only has scores below the lower threshold, and what was taken although all
    its strips were dropped.
    """


class CRAGOutput(Correction, Output, total=False):
    """The answer, and everything that led to it."""

    cited_answer: str
    """The answer with ``[n]`` where the model points at a piece of ``knowledge``, from 1."""


class CRAGState(CRAGInput, CRAGOutput, TurnState, total=False):
    """The whole state, with what only the nodes need."""

    branches: list[Literal["refine", "search"]]
    """The branches that the action, or the settings, ask for."""
    web_notes: list[str]
    """Notes on the pages: searching may run beside a step that writes ``notes``."""
    approval: Literal["none", "wanted", "late"]
    """Whether a person is asked before the web is: the turn began with it, or a later context did.

    Kept with the thread, so that no other context undoes it.
    """


class SelfCRAGOutput(SelfRAGOutput, CRAGOutput, total=False):
    """Both graphs' outputs; candidates and citations point into ``knowledge``."""


class SelfCRAGState(SelfRAGState, CRAGState, total=False):
    """The whole state of Self-CRAG."""


def blank_crag() -> dict[str, Any]:
    """A turn of CRAG before anything has happened."""
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
