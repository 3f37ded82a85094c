"""CRAG on hand-made evaluators and pages."""

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.crag import create_crag
from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.search import WebSearch
from selfcorrect_rag.thresholds import Thresholds
from tests.scripted import echo

SCORES = {"gold": 0.9, "vague": 0.0, "noise": -0.9, "worthless": -1.0}
"""By the word that a text begins with."""


class WordEvaluator(RetrievalEvaluator):
    """Scores a text by the words in it; remembers every call."""

    thresholds = Thresholds(upper=0.5, lower=-0.5)

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        self.calls.append(list(passages))
        return [max((SCORES[w] for w in SCORES if w in p.lower()), default=-1.0) for p in passages]

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        return self.score(question, passages)


class PagesSearch(WebSearch):
    name = "pages"

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure, self.queries = failure, []

    def search(self, query: str, k: int) -> list[Document]:
        self.queries.append((query, k))
        if self.failure:
            raise self.failure
        return [
            Document("Gold of the web.", metadata={"title": "Web 1", "source": "https://a.org"}),
            Document("Worthless.", metadata={"title": "Web 2", "source": "https://b.org"}),
        ][:k]

    async def asearch(self, query: str, k: int) -> list[Document]:
        return self.search(query, k)


def document(text: str, title: str = "") -> Document:
    return Document(text, metadata={"title": title or text[:10], "source": "notes"}, id=text)


def run(texts: Sequence[str], llm: Any = None, web: WebSearch | None = None, **context: Any) -> Any:
    found = [document(text) for text in texts]
    graph = create_crag(llm or echo(), lambda _: found, WordEvaluator(), web or PagesSearch())
    return graph.invoke({"question": "Who wrote Emma?"}, context=context)  # type: ignore[arg-type]


CORRECT = ["Gold is here.", "Noise is here."]
AMBIGUOUS = ["Vague words.", "Noise is here."]
INCORRECT = ["Noise is here.", "Worthless."]
