"""Self-RAG that says so if documents disagree, and which of them is the newest."""

from typing import Any

from langchain_core.documents import Document
from langgraph.graph import END

from selfcorrect_rag import self_rag_builder
from selfcorrect_rag.agents.conflicts import describe_conflict, find_conflicts
from selfcorrect_rag.reader import ReaderLLM
from selfcorrect_rag.state import SelfRAGState

DOCUMENTS = [
    Document(
        "The staging server runs on port 8443.",
        metadata={"title": "Staging notes", "date": "2024-03-01"},
    ),
    Document(
        "Since the move, the staging server runs on port 9000.",
        metadata={"title": "Operations handbook", "date": "2026-01-05"},
    ),
]


def tell_conflict(state: SelfRAGState) -> dict[str, Any]:
    """Add a note if the passages disagree."""
    note = describe_conflict(find_conflicts(state, newest_by="date"))
    return {"notes": [note] if note else []}


def main(question: str) -> None:
    builder = self_rag_builder(ReaderLLM.load(), lambda query: DOCUMENTS)
    builder.add_node("tell_conflict", tell_conflict)
    builder.add_edge("write_answer", "tell_conflict")
    builder.add_edge("tell_conflict", END)
    result = builder.compile().invoke({"question": question})
    print("answer:", result["answer"])
    print("notes:", "; ".join(result["notes"]))
    for claim in find_conflicts(result, newest_by="date"):
        sources = ", ".join(cited["title"] for cited in claim["citations"])
        print(f"{claim['newest']}: {claim['answer']} ({sources})")


if __name__ == "__main__":
    main("Which port does the staging server run on?")
