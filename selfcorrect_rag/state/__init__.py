"""The state of the graphs: TypedDicts of JSON values, Documents and messages."""

from typing import Any

from selfcorrect_rag.state.common import Citation, Input, Output
from selfcorrect_rag.state.costs import Cost, StepRun, Usage
from selfcorrect_rag.state.crag import (
    Correction,
    CRAGInput,
    CRAGOutput,
    CRAGState,
    Grade,
    SelfCRAGOutput,
    SelfCRAGState,
    Strip,
    blank_crag,
)
from selfcorrect_rag.state.instruct_rag import (
    Demonstration,
    InstructRAGInput,
    InstructRAGOutput,
    InstructRAGState,
    blank_instruct_rag,
)
from selfcorrect_rag.state.self_rag import (
    Beam,
    Candidate,
    Decision,
    Piece,
    Segment,
    SelfRAGInput,
    SelfRAGOutput,
    SelfRAGState,
    blank_self_rag,
)


def blank_state() -> dict[str, Any]:
    """The initial keys of a turn, for using a node outside our graphs.

    Without ``question``, ``passages``, ``mode`` and ``branches``, which nodes set.
    """
    blank = {**blank_instruct_rag("instruct"), **blank_crag(), **blank_self_rag(), "fixed": False}
    return {key: value for key, value in blank.items() if key not in ("mode", "branches")}


__all__ = [
    "Beam",
    "CRAGInput",
    "CRAGOutput",
    "CRAGState",
    "Candidate",
    "Citation",
    "Correction",
    "Cost",
    "Decision",
    "Demonstration",
    "Grade",
    "Input",
    "InstructRAGInput",
    "InstructRAGOutput",
    "InstructRAGState",
    "Output",
    "Piece",
    "Segment",
    "SelfCRAGOutput",
    "SelfCRAGState",
    "SelfRAGInput",
    "SelfRAGOutput",
    "SelfRAGState",
    "StepRun",
    "Strip",
    "Usage",
    "blank_state",
]
