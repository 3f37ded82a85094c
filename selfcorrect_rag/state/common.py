"""The keys that all graphs share: input, turn, output, citations."""

from typing import Annotated, Any

from langchain_core.documents import Document
from langchain_core.messages import AnyMessage
from langgraph.channels import EphemeralValue
from langgraph.graph.message import add_messages
from pydantic import Field
from typing_extensions import TypedDict  # pydantic, which makes the schemas, asks for it on 3.11

from selfcorrect_rag.state.costs import Cost, StepRun, Stop, costs_together, route_together


class Input(TypedDict, total=False):
    """Give ``question``, or ``messages`` that end with a human message."""

    question: Annotated[str, Field(description="The question. Leave it out in a chat.")]
    messages: Annotated[
        list[AnyMessage],
        Field(description="The chat; its last message, from a human, is the question."),
        add_messages,
    ]
    documents: Annotated[
        list[Document],
        Field(description="Documents for this turn, best first: then nothing is retrieved."),
        EphemeralValue,
    ]


class Turn(TypedDict):
    """The question of one turn, apart from the state that its thread holds."""

    question: str
    by_message: bool
    """Whether the last message is the question, so that the answer is a message too."""
    message_id: str | None
    """The id of that message in the input; None if it has none or ``question`` asks."""


class TurnState(TypedDict, total=False):
    """State keys about the turn, shared by all graphs."""

    turn: Annotated[Turn, EphemeralValue]
    """Written by ``__start__``, read by ``read_question``, then dropped."""
    human_message_id: str | None
    """The id of the message that asked, empty if it has none; None where ``question`` did."""
    reply_id: str
    """The id of the message that the answer is streamed as."""
    fixed: bool
    """Whether the caller gave the documents."""


class Citation(TypedDict):
    """A relevant text that a part of the answer was written from."""

    number: int
    """The number printed in the answer, from 1."""
    passage: int
    """Index into ``passages``; for CRAG and Self-CRAG, into ``knowledge``."""
    title: str
    """One line of at most 200 characters."""
    source: str
    """An http, https or file address, or the path of a file; empty where it is anything else."""
    text: str
    quote: str
    """The sentence or line of ``text`` in which the answer, or one of these segments, stands word
    for word; empty where it was put in other words."""
    segments: list[int]
    """Indices of the answer's segments that were generated from it."""


class Output(TypedDict, total=False):
    """The output of every graph."""

    question: str
    """The question that was answered: for a follow-up, the standalone rewrite."""
    original_question: str
    """The question in the user's own words."""
    messages: Annotated[list[AnyMessage], add_messages]
    answer: str
    """Plain text, without citation marks."""
    sufficiency: float | None
    """Probability that what was found is enough to answer; None where it was not judged, as
    without the setting ``sufficient_context``."""
    citations: list[Citation]
    notes: list[str]
    """Notes for a reader: fallbacks taken, limits met, prompts shortened."""
    route: Annotated[list[StepRun], route_together]
    """The steps that ran for this turn, in order; parallel ones by name."""
    costs: Annotated[dict[str, Cost], costs_together]
    """Cost by step (node), in the order of first runs."""
    stopped: Stop | None
    """The limit or failed part that prevented a step or part of one; ``notes`` say which step."""


def blank_common() -> dict[str, Any]:
    """The initial state of a turn of any graph."""
    return {
        "answer": "",
        "sufficiency": None,
        "citations": [],
        "notes": [],
        "costs": {},
        "stopped": None,
    }
