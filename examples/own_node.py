"""A node of one's own in CRAG's graph, and a node of CRAG's alone and in one's own graph."""

from typing import Any

from langchain_core.documents import Document
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from selfcorrect_rag import create_crag
from selfcorrect_rag.nano import demo_index
from selfcorrect_rag.nodes.grade_documents import grade_documents
from selfcorrect_rag.reader import ReaderEvaluator, ReaderLLM


def extract(state: dict[str, Any]) -> dict[str, Any]:
    """An answer without a model: the knowledge itself."""
    return {"answer": " ".join(piece.page_content for piece in state["knowledge"])}


class Question(TypedDict, total=False):
    question: str
    passages: list[Document]
    action: str


def main(question: str) -> None:
    llm, retriever = ReaderLLM.load(), demo_index().as_retriever(k=5)
    evaluator = ReaderEvaluator(llm.reader)
    graph = create_crag(llm, retriever, evaluator, nodes={"generate": extract})
    print("replaced:", graph.invoke({"question": question})["answer"])

    step = grade_documents(evaluator)
    given: Question = {"question": question, "passages": retriever.invoke(question)}
    print("alone:", step.invoke(given)["action"])

    own = StateGraph(Question).add_node("grade", step)
    own.add_edge(START, "grade").add_edge("grade", END)
    print("in a graph:", own.compile().invoke(given)["action"])


if __name__ == "__main__":
    main("Who wrote Middlemarch?")
