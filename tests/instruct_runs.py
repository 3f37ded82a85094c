"""InstructRAG on documents and demonstrations made up here."""

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from selfcorrect_rag import create_instruct_rag
from selfcorrect_rag.state import Demonstration
from tests.scripted import document, echo

QUESTION = "Who wrote Middlemarch?"
TITLES = ["Middlemarch", "Eliot Park", "Emma"]
DEMONSTRATIONS: list[Demonstration] = [
    {"question": f"Who wrote {name}?", "rationale": f"Because {name}.", "answers": [f"By {name}"]}
    for name in ("Emma", "Ulysses", "Walden", "Dracula", "Persuasion")
]
RATIONALE = (
    "Document [3] names the author. Document [1] is not relevant. Document [7] is a novel. "
    "Therefore, the answer is George Eliot."
)


class Words(Embeddings):
    """A dimension for each of a few words; counts its calls."""

    words = ("emma", "ulysses", "walden", "dracula", "persuasion")

    def __init__(self) -> None:
        self.calls = 0

    def embed_query(self, text: str) -> list[float]:
        self.calls += 1
        return [float(word in text.lower()) for word in self.words]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


def documents(titles: Sequence[str] = TITLES) -> list[Document]:
    return [document(title, source="notes") for title in titles]


def run(llm: Any = None, titles: Sequence[str] = TITLES, **context: Any) -> Any:
    graph = create_instruct_rag(
        llm or echo(), lambda query: documents(titles), DEMONSTRATIONS, embeddings=Words()
    )
    question = context.pop("question", QUESTION)
    return graph.invoke({"question": question}, context=context)  # type: ignore[arg-type]
