"""The corpora of ``make demo``, as an index and as a web search."""

import json
from pathlib import Path

from langchain_core.documents import Document

from selfcorrect_rag.search.index import Index
from selfcorrect_rag.search.web_search import RetrieverWebSearch

_CORPUS = Path(__file__).parent / "corpus"
DEMO_INDEX, DEMO_WEB = Path(".selfcorrect/demo"), Path(".selfcorrect/demo-web")


def demo_index(path: Path = DEMO_INDEX) -> Index:
    """Open the index of the demo corpus on disk; it is made or completed if need be."""
    return add_corpus(Index(path), "passages.jsonl", "demo corpus")


def demo_web(path: Path = DEMO_WEB) -> RetrieverWebSearch:
    """Open a second corpus that plays the web: it has answers that the first one lacks."""
    index = add_corpus(Index(path, "bm25"), "web.jsonl", "demo web")
    return RetrieverWebSearch(index.as_retriever(), "a second local corpus in place of the web")


def add_corpus(index: Index, name: str, source: str) -> Index:
    """Add the rows of a corpus file that the index lacks, and return the index."""
    lines = (_CORPUS / name).read_text(encoding="utf-8").splitlines()
    if len(index) < len(lines):
        rows = map(json.loads, lines)
        index.add(Document(row.pop("text"), metadata={**row, "source": source}) for row in rows)
    return index
