"""What flows through the graphs: TypedDicts of JSON values, Documents and messages."""

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
)
from selfcorrect_rag.state.instruct_rag import (
    Demonstration,
    InstructRAGInput,
    InstructRAGOutput,
    InstructRAGState,
)
from selfcorrect_rag.state.self_rag import (
    Beam,
    Candidate,
    Citation,
    Decision,
    Input,
    Output,
    Piece,
    Segment,
    SelfRAGInput,
    SelfRAGOutput,
    SelfRAGState,
)

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
]
