"""What LangGraph's Self-RAG tutorial does with any chat model, as a graph of its own.

Three yes/no prompts and a loop: each document is graded by a call, an answer is written from those
that pass, one call asks whether it is grounded in them and one whether it answers the question;
where not, it is written again, or the question is rewritten and everything begins anew. The
tutorial's loop ends when LangGraph's recursion limit raises an error; this one gives what it has
after ``rounds`` answers or rewritings.
"""

from typing import Any, TypedDict

from langchain_core.documents import Document
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.runnables import Runnable
from langgraph.graph import END, START, StateGraph

GRADE = (
    "Is the document relevant to the question, by keywords or by meaning? The aim is to leave out "
    "what was retrieved by mistake. Answer yes or no."
)
WRITE = "Answer the question from the documents, in three sentences at most."
GROUNDED = "Is the answer grounded in the documents? Answer yes or no."
RESOLVES = "Does the answer resolve the question? Answer yes or no."
REWRITE = "Rewrite the question so that a vector search finds better documents for it."


class State(TypedDict, total=False):
    """What flows through the graph."""

    question: str
    asked: str
    """The question as it was rewritten last."""
    documents: list[Document]
    answer: str
    rounds: int


def create_tutorial(
    llm: BaseChatModel, retriever: Runnable[str, list[Document]], rounds: int = 3
) -> Any:
    """The graph; its input is ``question``, its output has ``answer``."""

    def says_yes(instruction: str, **fields: str) -> bool:
        return ask(instruction, **fields).lower().startswith("yes")

    def ask(instruction: str, **fields: str) -> str:
        return str(llm.invoke("\n".join([instruction, *lines(fields)])).content).strip()

    def retrieve(state: State) -> State:
        asked = state.get("asked", state["question"])
        return {"documents": retriever.invoke(asked), "asked": asked}

    def grade_documents(state: State) -> State:
        passed = [
            document
            for document in state["documents"]
            if says_yes(GRADE, question=state["asked"], document=text(document))
        ]
        return {"documents": passed}

    def generate(state: State) -> State:
        answer = ask(WRITE, question=state["asked"], **numbered(state["documents"]))
        return {"answer": answer, "rounds": state.get("rounds", 0) + 1}

    def rewrite(state: State) -> State:
        asked = ask(REWRITE, question=state["asked"])
        return {"asked": asked, "rounds": state.get("rounds", 0) + 1}

    def after_grading(state: State) -> str:
        if state["documents"]:
            return "generate"
        return "rewrite" if state.get("rounds", 0) < rounds else END

    def after_writing(state: State) -> str:
        found = numbered(state["documents"])
        # The tutorial leaves the question out here; the simulated model judges better with it.
        if not says_yes(GROUNDED, question=state["asked"], answer=state["answer"], **found):
            return "generate" if state["rounds"] < rounds else END
        if not says_yes(RESOLVES, question=state["question"], answer=state["answer"]):
            return "rewrite" if state["rounds"] < rounds else END
        return END

    graph = StateGraph(State)
    graph.add_node("retrieve", retrieve)
    graph.add_node("grade_documents", grade_documents)
    graph.add_node("generate", generate)
    graph.add_node("rewrite", rewrite)
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "grade_documents")
    graph.add_conditional_edges("grade_documents", after_grading, ["generate", "rewrite", END])
    graph.add_conditional_edges("generate", after_writing, ["generate", "rewrite", END])
    graph.add_edge("rewrite", "retrieve")
    return graph.compile(name="tutorial")


def lines(fields: dict[str, str]) -> list[str]:
    """A field a line, as the critique prompts have them: lines after a field's first are indented,
    so that the same simulated model reads both."""
    return [f"{name.capitalize()}: " + "\n  ".join(t.splitlines()) for name, t in fields.items()]


def numbered(documents: list[Document]) -> dict[str, str]:
    return {f"document {i}": text(document) for i, document in enumerate(documents, start=1)}


def text(document: Document) -> str:
    return f"{document.metadata.get('title', '')}\n{document.page_content}"
