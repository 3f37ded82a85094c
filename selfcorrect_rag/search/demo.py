"""The corpora of ``make demo``, as an index and as a web search."""

import json
from pathlib import Path

from langchain_core.documents import Document

from selfcorrect_rag.search.index import Index
from selfcorrect_rag.search.web_search import RetrieverWebSearch

_CORPUS = Path(__file__).parent / "corpus"
DEMO_INDEX, DEMO_WEB = Path(".selfcorrect/demo"), Path(".selfcorrect/demo-web")


def demo_passages() -> list[Document]:
    """Return the demo corpus, as documents with title and source."""
    return _documents("passages.jsonl", "demo corpus")


def demo_index(path: Path = DEMO_INDEX) -> Index:
    """Open the index of the demo corpus on disk; it is made or completed if need be."""
    return _filled(Index(path), demo_passages())


def demo_web(path: Path = DEMO_WEB) -> RetrieverWebSearch:
    """Open a second corpus that plays the web: it has answers that the first one lacks."""
    index = _filled(Index(path, "bm25"), _documents("web.jsonl", "demo web"))
    return RetrieverWebSearch(index.as_retriever(), "a second local corpus in place of the web")


def _filled(index: Index, documents: list[Document]) -> Index:
    if len(index) < len(documents):
        index.add(documents)
    return index


def _documents(name: str, source: str) -> list[Document]:
    rows = map(json.loads, (_CORPUS / name).read_text(encoding="utf-8").splitlines())
    return [
        Document(row["text"], metadata={"title": row["title"], "source": source}) for row in rows
    ]
