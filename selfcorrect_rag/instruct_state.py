"""What flows through InstructRAG: TypedDicts of JSON values, Documents and messages."""

from typing import Annotated, Any, Literal, Required

from langchain_core.documents import Document
from langchain_core.messages import AnyMessage
from langgraph.channels import EphemeralValue
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

from selfcorrect_rag.costs import CostedOutput, blank_costs
from selfcorrect_rag.documents import Documents
from selfcorrect_rag.state import Citation

Mode = Literal["icl", "ft", "instruct", "no_retrieval", "ralm", "few_shot"]
"""What the model is asked. InstructRAG: with demonstrations, fine-tuned, by instruction alone.

Baselines (section 3.1): without retrieval, in-context RALM, few-shot demonstrations with
instruction.
"""


class Demonstration(TypedDict, total=False):
    """An example of how to answer; it has no documents (section 2.3)."""

    question: Required[str]
    rationale: str
    """What ``icl`` shows."""
    answers: list[str]
    """Names of one answer; ``few_shot`` shows the first."""


class InstructRAGInput(TypedDict, total=False):
    """Give ``question``, or ``messages`` whose last human message is the question."""

    question: str
    messages: Annotated[list[AnyMessage], add_messages]
    documents: Annotated[list[Document], EphemeralValue]
    """Documents fixed by the caller for this turn, best first: nothing is retrieved."""


class InstructRAGOutput(CostedOutput, total=False):
    """The answer, and everything that led to it."""

    question: str
    """What was answered: a follow-up question stands alone here, where it was rewritten."""
    asked: str
    """The question in the user's own words."""
    messages: Annotated[list[AnyMessage], add_messages]
    answer: str
    """The final answer alone; of a baseline, all that the model wrote."""
    rationale: str
    """All that the model wrote, its conclusion included; empty for a baseline."""
    useful_documents: list[int]
    """Documents that the rationale uses, as indices into ``passages``, in order of first name."""
    dismissed_documents: list[int]
    """Documents that it names as of no use."""
    citations: list[Citation]
    """One for each useful document; ``number`` as the rationale names it."""
    mode: Mode
    """How the model was asked; ``no_retrieval`` where nothing was found."""
    demonstrations: list[Demonstration]
    """Those that were shown, in their order."""
    passages: Documents
    """Every document retrieved or given, best first."""
    numbering: list[int]
    """Which of ``passages`` was shown as Document [1], [2] and so on."""
    notes: list[str]
    """What a reader should know: fallbacks taken, documents dropped or not to be found."""


class InstructRAGState(InstructRAGInput, InstructRAGOutput, total=False):
    """The whole state, with what only the nodes need."""

    fixed: bool
    """The caller gave the documents."""
    written: str
    """What the model wrote."""


def blank_instruct_rag(mode: Mode) -> dict[str, Any]:
    """A turn of InstructRAG before anything has happened."""
    return {
        "mode": mode,
        "answer": "",
        "rationale": "",
        "written": "",
        "useful_documents": [],
        "dismissed_documents": [],
        "citations": [],
        "demonstrations": [],
        "numbering": [],
        "notes": [],
        **blank_costs(),
    }
