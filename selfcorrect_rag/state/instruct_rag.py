"""The state of InstructRAG: TypedDicts of JSON values and Documents."""

from typing import Any, Required

from typing_extensions import TypedDict

from selfcorrect_rag.settings.instruct_rag import Mode
from selfcorrect_rag.state.common import Input, Output, TurnState, blank_common
from selfcorrect_rag.state.documents import Documents


class Demonstration(TypedDict, total=False):
    """An example of how to answer; it has no documents (section 2.3)."""

    question: Required[str]
    rationale: str
    """The rationale that ``icl`` shows."""
    answers: list[str]
    """Aliases of one answer; ``few_shot`` shows the first."""


class InstructRAGInput(Input, total=False):
    """Give ``question``, or ``messages`` that end with a human message."""


class InstructRAGOutput(Output, total=False):
    """The answer, and the intermediate results."""

    rationale: str
    """The model's whole output, conclusion included; empty for a baseline."""
    useful_documents: list[int]
    """Documents that the rationale uses, as indices into ``passages``, in order of first mention.

    Each has a citation with the ``number`` that the rationale uses for it, unless the answer is a
    refusal.
    """
    dismissed_documents: list[int]
    """Documents that the rationale calls useless, as indices into ``passages``."""
    mode: Mode
    """The prompt mode that was used; ``no_retrieval`` where nothing was found."""
    demonstrations: list[Demonstration]
    """The demonstrations shown, in order."""
    passages: Documents
    """Every document retrieved or given, best first."""
    numbering: list[int]
    """Indices into ``passages`` of the documents shown as Document [1], [2] and so on."""


class InstructRAGState(InstructRAGInput, InstructRAGOutput, TurnState, total=False):
    """The whole state, including the nodes' internal keys."""

    written: str
    """The text that the model wrote."""


def blank_instruct_rag(mode: Mode) -> dict[str, Any]:
    """The initial state of a turn of InstructRAG."""
    return {
        "mode": mode,
        **blank_common(),
        "rationale": "",
        "written": "",
        "useful_documents": [],
        "dismissed_documents": [],
        "demonstrations": [],
        "numbering": [],
    }
