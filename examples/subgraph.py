"""Self-RAG as one node of a graph of your own, which shares its messages.

python examples/subgraph.py "Who discovered penicillin?"
"""

import sys
from dataclasses import dataclass

from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.runtime import Runtime

from selfcorrect_rag import SelfRAGSettings, create_self_rag
from selfcorrect_rag.reader import ReaderLLM
from selfcorrect_rag.search.demo import demo_index
from selfcorrect_rag.state import Citation


@dataclass
class Recipient:
    """Your own context; the node inside has its settings from where it was made."""

    name: str


class State(MessagesState):
    """Keys that the graphs name alike flow through: messages, answer, citations, and so on."""

    citations: list[Citation]
    letter: str


def write_letter(state: State, runtime: Runtime[Recipient]) -> dict[str, str]:
    sources = ", ".join(citation["title"] for citation in state["citations"]) or "no source"
    said = state["messages"][-1].text
    return {"letter": f"Dear {runtime.context.name},\n{said}\n(from {sources})"}


def main(question: str) -> None:
    settings = SelfRAGSettings(mode="always")
    self_rag = create_self_rag(ReaderLLM.load(), demo_index().as_retriever(k=5), settings=settings)
    graph = StateGraph(State, Recipient, input_schema=MessagesState)
    graph.add_node("self_rag", self_rag)
    graph.add_node("write_letter", write_letter)
    graph.add_edge(START, "self_rag")
    graph.add_edge("self_rag", "write_letter")
    graph.add_edge("write_letter", END)
    result = graph.compile().invoke(
        {"messages": [HumanMessage(question)]}, context=Recipient(name="Dorothea")
    )
    print(result["letter"])


if __name__ == "__main__":
    main(sys.argv[1])
