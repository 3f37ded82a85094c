"""What works with no model hub, no GPU and no key: the nano generator and the demo corpora."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.nano.rule_chat_model import RuleChatModel
from selfcorrect_rag.search import BM25Index, ChromaIndex, RetrieverWebSearch

CORPUS = Path(__file__).parent / "corpus"
DEMO_INDEX, DEMO_WEB = Path(".selfcorrect/demo"), Path(".selfcorrect/demo-web")


def generator_path() -> Path:
    """The folder of the shipped generator, as ``from_pretrained`` takes it."""
    return Path(__file__).parent / "generator"


def load_generator(**options: Any) -> TransformersReflectionLLM:
    """The nano generator; ``options`` as in ``TransformersReflectionLLM.from_pretrained``."""
    return TransformersReflectionLLM.from_pretrained(generator_path(), **options)


def rationale_model_path() -> Path:
    """The folder of the shipped rationale model."""
    return Path(__file__).parent / "rationale_model"


def load_rationale_model(**options: Any) -> TransformersReflectionLLM:
    """The nano rationale model, for InstructRAG in mode ``ft``; ``options`` as above."""
    return TransformersReflectionLLM.from_pretrained(rationale_model_path(), **options)


def load_chat_model() -> RuleChatModel:
    """A rule that plays the chat model of an agent: it asks its tool and repeats the answer."""
    return RuleChatModel()


def demo_passages() -> Iterator[Document]:
    """The demo corpus, as documents with title and source."""
    return _documents("passages.jsonl", "demo corpus")


def demo_questions() -> list[dict[str, Any]]:
    """Questions on the demo corpus, with ``answers``, ``title`` and ``kind`` (see its README)."""
    rows = (CORPUS / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row) for row in rows]


def demo_index(path: Path = DEMO_INDEX) -> ChromaIndex:
    """A Chroma index of the demo corpus on disk; made at the first call, completed after a kill."""
    index = ChromaIndex(path)
    passages = list(demo_passages())
    if len(index) < len(passages):
        index.add(passages)
    return index


def demo_web(path: Path = DEMO_WEB) -> RetrieverWebSearch:
    """A second corpus that plays the web, found by BM25: answers that the demo corpus lacks."""
    index = BM25Index(path)
    pages = list(_documents("web.jsonl", "demo web"))
    if len(index) < len(pages):
        index.add(pages)
    return RetrieverWebSearch(index.as_retriever(), "a second local corpus in place of the web")


def _documents(name: str, source: str) -> Iterator[Document]:
    for row in (CORPUS / name).read_text(encoding="utf-8").splitlines():
        made = json.loads(row)
        yield Document(made["text"], metadata={"title": made["title"], "source": source})
