"""InstructRAG on documents and demonstrations made up here."""

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag import create_instruct_rag
from selfcorrect_rag.state import Demonstration
from tests.scripted import document, echo

QUESTION = "Who wrote Middlemarch?"
TITLES = ["Middlemarch", "Eliot Park", "Emma"]
LONG = [f"T{n} " + "word " * 60 for n in range(4)]
DEMONSTRATIONS: list[Demonstration] = [
    {"question": f"Who wrote {name}?", "rationale": f"Because {name}.", "answers": [f"By {name}"]}
    for name in ("Emma", "Ulysses", "Walden", "Dracula", "Persuasion")
]
RATIONALE = (
    "Document [3] names the author. Document [1] is not relevant. Document [7] is a novel. "
    "Therefore, the answer is George Eliot."
)


def documents(titles: Sequence[str] = TITLES) -> list[Document]:
    return [document(title, source="notes") for title in titles]


def run(llm: Any = None, titles: Sequence[str] = TITLES, **context: Any) -> Any:
    graph = create_instruct_rag(llm or echo(), lambda query: documents(titles), DEMONSTRATIONS)
    question = context.pop("question", QUESTION)
    return graph.invoke({"question": question}, context=context)  # type: ignore[arg-type]
