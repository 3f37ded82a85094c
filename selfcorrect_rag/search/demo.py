"""The corpora of ``make demo``, as an index and as a web search."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.search.index import Index
from selfcorrect_rag.search.web_search import RetrieverWebSearch

_CORPUS = Path(__file__).parent / "corpus"
DEMO_INDEX, DEMO_WEB = Path(".selfcorrect/demo"), Path(".selfcorrect/demo-web")


def demo_passages() -> Iterator[Document]:
    """Iterate over the demo corpus, as documents with title and source."""
    return _documents("passages.jsonl", "demo corpus")


def demo_questions() -> list[dict[str, Any]]:
    """Return questions on the demo corpus, with ``answers``, ``title`` and ``kind``; misleading
    ones have ``web_answers`` too (see its README)."""
    return list(_rows("questions.jsonl"))


def demo_index(path: Path = DEMO_INDEX) -> Index:
    """Open the index of the demo corpus on disk; it is made at the first call, and completed after
    a kill."""
    index = Index(path)
    passages = list(demo_passages())
    if len(index) < len(passages):
        index.add(passages)
    return index


def demo_web(path: Path = DEMO_WEB) -> RetrieverWebSearch:
    """Open a second corpus that plays the web: it has answers that the first one lacks."""
    index = Index(path, "bm25")
    pages = list(_documents("web.jsonl", "demo web"))
    if len(index) < len(pages):
        index.add(pages)
    return RetrieverWebSearch(index.as_retriever(), "a second local corpus in place of the web")


def _documents(name: str, source: str) -> Iterator[Document]:
    for row in _rows(name):
        yield Document(row["text"], metadata={"title": row["title"], "source": source})


def _rows(name: str) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, (_CORPUS / name).read_text(encoding="utf-8").splitlines())
