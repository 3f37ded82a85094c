"""The keys that all graphs share: input, turn, output, citations."""

from typing import Annotated, Any

from langchain_core.documents import Document
from langchain_core.messages import AnyMessage
from langgraph.channels import EphemeralValue
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict  # pydantic, which makes the schemas, asks for it on 3.11

from selfcorrect_rag.state.costs import Cost, StepRun, Stop, costs_together, route_together


class Input(TypedDict, total=False):
    """Give ``question``, or ``messages`` that end with a human message."""

    question: str
    messages: Annotated[list[AnyMessage], add_messages]
    documents: Annotated[list[Document], EphemeralValue]
    """Documents fixed by the caller for this turn, best first: nothing is retrieved."""


class Turn(TypedDict):
    """The question of one turn, apart from the state that its thread holds."""

    question: str
    by_message: bool
    """The last message asks, and is to be answered with one."""
    message_id: str | None
    """The id that this message came with; None where it came without or where none asks."""


class TurnState(TypedDict, total=False):
    """How the turn was asked; the same for every graph."""

    turn: Annotated[Turn, EphemeralValue]
    """Written at ``__start__``, read by ``read_question``, and gone after it."""
    human_message_id: str | None
    """The id of the message that asked, empty if it has none; None where ``question`` did."""
    reply_id: str
    """The id of the message that the answer is streamed as."""
    fixed: bool
    """The caller gave the documents."""


class Citation(TypedDict):
    """A text that a part of the answer was written from, and that was judged relevant."""

    number: int
    """As printed in the answer, from 1."""
    passage: int
    """Index into ``passages``; of CRAG and Self-CRAG, into ``knowledge``."""
    title: str
    """On one line, of at most 200 characters."""
    source: str
    """An http, https or file address, or the path of a file; empty where it is anything else."""
    text: str
    segments: list[int]
    """Which segments of the answer were generated from it."""


class Output(TypedDict, total=False):
    """The output of every graph."""

    question: str
    """The question as it was answered: a follow-up question stands alone here, where it was
    rewritten."""
    original_question: str
    """The question in the user's own words."""
    messages: Annotated[list[AnyMessage], add_messages]
    answer: str
    """Plain text, without citation marks."""
    citations: list[Citation]
    notes: list[str]
    """Notes for a reader: fallbacks taken, limits met, prompts shortened."""
    route: Annotated[list[StepRun], route_together]
    """The steps that ran for this turn, in order; those side by side by their names."""
    costs: Annotated[dict[str, Cost], costs_together]
    """By step (node), in the order in which they first ran; nested in none of the others."""
    stopped: Stop | None
    """The limit or the part that kept the run from a step or from part of one; ``notes`` say from
    which."""


def blank_common() -> dict[str, Any]:
    """A turn of any graph before anything has happened."""
    return {"answer": "", "citations": [], "notes": [], "costs": {}, "stopped": None}
