"""Documents in dated versions: a question reads those of the year that it names, or of today."""

import re
from datetime import date
from typing import Any

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda

from selfcorrect_rag import create_self_rag
from selfcorrect_rag.reader import ReaderLLM

PAGES = [
    Document(f"The staging server runs on port {port}.", metadata={"title": "Ops", "date": day})
    for port, day in ((8443, "2023-03-01"), (9000, "2024-01-05"), (9100, "2025-02-01"))
]


def current(retriever: Runnable[str, list[Document]], key: str = "title") -> Any:
    """Return a retriever that keeps, of documents with the same ``key``, one version: the newest
    by the ISO date in its metadata that is not later than the year that the question names."""

    def find(query: str) -> list[Document]:
        years = re.findall(r"\b(?:19|20)\d\d\b", query)
        day = f"{max(years)}-12-31" if years else date.today().isoformat()
        kept = dict[Any, Document]()
        for document in sorted(retriever.invoke(query), key=lambda d: d.metadata["date"]):
            if document.metadata["date"] <= day:
                kept[document.metadata[key]] = document
        return list(kept.values())

    return RunnableLambda(find, name="current")


def main(question: str) -> None:
    graph = create_self_rag(ReaderLLM.load(), current(RunnableLambda(lambda query: PAGES)))
    print(graph.invoke({"question": question})["answer"])


if __name__ == "__main__":
    main("Which port does the staging server run on?")
