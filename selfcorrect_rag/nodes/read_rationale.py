"""read_rationale: what the model wrote, as final answer, useful documents and citations."""

from selfcorrect_rag.conclusions import final_answer
from selfcorrect_rag.events import Answered
from selfcorrect_rag.instruct_state import InstructRAGState
from selfcorrect_rag.nodes.base import Node, Update, emit, plain_node
from selfcorrect_rag.nodes.write_rationale import NO_ANSWER
from selfcorrect_rag.rationales import read_documents
from selfcorrect_rag.state import Citation

BASELINES = ("no_retrieval", "ralm", "few_shot")
"""Modes whose model is to answer, not to explain."""


def read_rationale() -> Node[InstructRAGState]:
    """Separate the answer from the rationale, and check the documents that it names.

    What a baseline writes is the answer as a whole. Documents that are named but were not shown
    are left out, and a note says so.
    """

    def run(state: InstructRAGState) -> Update:
        written, numbering = state["written"], state["numbering"]
        shown = [state["passages"][i] for i in numbering]
        reading = read_documents(written, [str(d.metadata.get("title") or "") for d in shown])
        citations = [
            Citation(
                number=number,
                passage=numbering[number - 1],
                title=str(shown[number - 1].metadata.get("title") or ""),
                source=str(shown[number - 1].metadata.get("source") or ""),
                text=shown[number - 1].page_content,
                segments=[0],
            )
            for number in reading.useful
        ]
        is_baseline = state["mode"] in BASELINES
        answer = (written if is_baseline else final_answer(written)) or NO_ANSWER
        emit(Answered(event="answered", answer=answer, citations=len(citations)))
        return {
            "answer": answer,
            "rationale": "" if is_baseline else written,
            "useful_documents": [citation["passage"] for citation in citations],
            "dismissed_documents": [numbering[number - 1] for number in reading.dismissed],
            "citations": citations,
            "notes": [
                *state["notes"],
                *(f"Document [{n}] is named but was not shown" for n in reading.missing),
            ],
        }

    return plain_node(run)
