"""CRAG inside a graph with keys of its own, and one of its nodes alone.

python examples/crag_in_own_graph.py "Who discovered penicillin?"
"""

import sys
from typing import NotRequired

from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from selfcorrect_rag import create_crag
from selfcorrect_rag.nodes.grade_documents import grade_documents
from selfcorrect_rag.reader import ReaderEvaluator, ReaderLLM
from selfcorrect_rag.search.demo import demo_index


class Ticket(TypedDict):
    """Keys that CRAG does not know."""

    request: str
    reply: NotRequired[str]
    sources: NotRequired[list[str]]


def main(request: str) -> None:
    llm, retriever = ReaderLLM.load(), demo_index().as_retriever()
    evaluator = ReaderEvaluator(llm.reader)
    crag = create_crag(llm, retriever, evaluator)

    def look_up(state: Ticket) -> dict[str, str | list[str]]:
        result = crag.invoke({"question": state["request"]})
        sources = [citation["title"] for citation in result["citations"]]
        return {"reply": result["answer"], "sources": sources}

    graph = StateGraph(Ticket).add_node("look_up", look_up)
    graph.add_edge(START, "look_up").add_edge("look_up", END)
    ticket = graph.compile().invoke({"request": request})
    print(ticket["reply"], ticket["sources"])

    passages = retriever.invoke(request)
    graded = grade_documents(evaluator).invoke({"question": request, "passages": passages})
    print(graded["action"], [grade["score"] for grade in graded["grades"]])


if __name__ == "__main__":
    main(sys.argv[1])
