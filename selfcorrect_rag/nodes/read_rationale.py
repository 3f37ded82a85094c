"""read_rationale: parse the model's output into final answer, useful documents and citations."""

from selfcorrect_rag.events import Answered
from selfcorrect_rag.nodes.base.citations import citation
from selfcorrect_rag.nodes.base.node import Node, Update, emit
from selfcorrect_rag.nodes.base.reply import NO_ANSWER, annotated
from selfcorrect_rag.prompts.quoting import quoted
from selfcorrect_rag.prompts.rationale.conclusions import final_answer
from selfcorrect_rag.prompts.rationale.documents import read_documents
from selfcorrect_rag.prompts.refusals import is_refusal
from selfcorrect_rag.state.instruct_rag import InstructRAGState

BASELINES = ("no_retrieval", "ralm", "few_shot")
"""Modes whose prompt asks for an answer without a rationale."""


def read_rationale() -> Node:
    """Separate the answer from the rationale, and check the document numbers that it mentions.

    A baseline's whole output is the answer. Mentioned documents that were not shown are left out,
    and a note says so. The useful ones are cited, unless the answer is a refusal. The reply that
    the step before wrote gets the citations.
    """

    def run(state: InstructRAGState) -> Update:
        written = state["written"]
        numbering = state["numbering"] or list(range(len(state.get("passages") or [])))
        if state.get("mode") == "no_retrieval":
            numbering = []
        shown = [state["passages"][i] for i in numbering]
        titles = [quoted(str(d.metadata.get("title") or "")) for d in shown]  # as the model saw
        reading = read_documents(written, titles)
        is_baseline = state.get("mode") in BASELINES
        answer = (written if is_baseline else final_answer(written, titles)) or NO_ANSWER
        cited = [] if is_refusal(answer) else reading.useful
        question = state.get("question") or ""
        citations = [
            citation(n, numbering[n - 1], shown[n - 1], [0], [answer], question) for n in cited
        ]
        emit(Answered(event="answered", answer=answer, citations=len(citations)))
        return {
            "answer": answer,
            "rationale": "" if is_baseline else written,
            "useful_documents": [numbering[number - 1] for number in reading.useful],
            "dismissed_documents": [numbering[number - 1] for number in reading.dismissed],
            "citations": citations,
            "notes": [
                *state["notes"],
                *(f"Document [{n}] is named but was not shown" for n in reading.missing),
            ],
            **annotated(state, citations),
        }

    return Node("read_rationale", run)
