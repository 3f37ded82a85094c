"""read_rationale: read the answer, the useful documents and the citations from the rationale."""

from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.events import Answered
from selfcorrect_rag.nodes.citations import citation
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.nodes.reply import NO_ANSWER, reply
from selfcorrect_rag.nodes.written import continue_message
from selfcorrect_rag.prompts.instruct_rag import read_answer, read_numbers
from selfcorrect_rag.prompts.refusals import is_refusal
from selfcorrect_rag.settings import InstructRAGSettings

BASELINES = ("no_retrieval", "ralm", "few_shot")
"""Modes whose prompt asks for an answer without a rationale."""


def read_rationale(llm: object = None) -> Node[Any]:
    """Read the answer and the documents that the rationale's last paragraph names by number.

    A baseline's whole output is the answer. Numbers of documents that were not shown are left out,
    and a note says so. The useful documents are cited, unless the answer is a refusal.

    Args:
        llm: the model that wrote the rationale, named in the reply's metadata.
    """

    def step(state: Mapping[str, Any], run: Run[InstructRAGSettings]) -> Update:
        written, numbering = state["written"], state["numbering"]
        is_baseline = state["mode"] in BASELINES
        answer = (written if is_baseline else read_answer(written)) or NO_ANSWER
        named = read_numbers(written)
        useful = [n for n in named if 0 < n <= len(numbering)]
        citations = [
            citation(
                n, numbering[n - 1], state["passages"][numbering[n - 1]], [0], [answer],
                state["question"],
            )
            for n in ([] if is_refusal(answer) else useful)
        ]  # fmt: skip
        continue_message(state, run)
        numbers = [f"[{cited['number']}]" for cited in citations]
        marks = "".join(f" {mark}" for mark in numbers if mark not in answer)
        run.emit(Answered(event="answered", answer=answer, citations=len(citations)))
        return {
            "question": state["question"],
            "answer": answer,
            "cited_answer": f"{answer}{marks}",
            "rationale": "" if is_baseline else written,
            "useful_documents": [numbering[n - 1] for n in useful],
            "citations": citations,
            "notes": [
                f"Document [{n}] is named but was not shown" for n in named if n not in useful
            ],
            **reply(state, run, written or answer, citations, llm),
        }

    return Node("read_rationale", step, InstructRAGSettings())
