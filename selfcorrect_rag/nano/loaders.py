"""Loads the shipped models and the demo corpora: no model hub, no GPU, no key.

The models were made by `nano_training`, which does not ship; each has its card beside its weights.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.models import TransformersReflectionLLM
from selfcorrect_rag.nano.rule_chat_model import RuleChatModel
from selfcorrect_rag.nodes.rewrite_follow_up import FollowUpRule
from selfcorrect_rag.search import BM25Index, ChromaIndex, RetrieverWebSearch

NANO = Path(__file__).parent
CORPUS = NANO / "corpus"
DEMO_INDEX, DEMO_WEB = Path(".selfcorrect/demo"), Path(".selfcorrect/demo-web")


def generator_path() -> Path:
    """The folder of the shipped generator, as ``from_pretrained`` takes it."""
    return NANO / "generator"


def load_generator(**options: Any) -> TransformersReflectionLLM:
    """The nano generator; ``options`` as in ``TransformersReflectionLLM.from_pretrained``."""
    return TransformersReflectionLLM.from_pretrained(generator_path(), **options)


def rationale_model_path() -> Path:
    """The folder of the shipped rationale model."""
    return NANO / "rationale_model"


def load_rationale_model(**options: Any) -> TransformersReflectionLLM:
    """The nano rationale model, for InstructRAG in mode ``ft``; ``options`` as above."""
    return TransformersReflectionLLM.from_pretrained(rationale_model_path(), **options)


def load_chat_model(follow_up: FollowUpRule | None = None) -> RuleChatModel:
    """A fake chat model for agents: it calls its tool and repeats the answer.

    Args:
        follow_up: rewrites questions of later turns to stand alone; None asks each as it is.
    """
    return RuleChatModel(follow_up=follow_up)


def demo_passages() -> Iterator[Document]:
    """The demo corpus, as documents with title and source."""
    return _documents("passages.jsonl", "demo corpus")


def demo_questions() -> list[dict[str, Any]]:
    """Questions on the demo corpus, with ``answers``, ``title`` and ``kind``; misleading
    ones with ``web_answers`` too (see its README)."""
    return list(_rows("questions.jsonl"))


def demo_index(path: Path = DEMO_INDEX) -> ChromaIndex:
    """A Chroma index of the demo corpus on disk; made at the first call, completed after a kill."""
    index = ChromaIndex(path)
    passages = list(demo_passages())
    if len(index) < len(passages):
        index.add(passages)
    return index


def demo_web(path: Path = DEMO_WEB) -> RetrieverWebSearch:
    """A second corpus, searched by BM25, in place of the web: it has answers that the first
    lacks."""
    index = BM25Index(path)
    pages = list(_documents("web.jsonl", "demo web"))
    if len(index) < len(pages):
        index.add(pages)
    return RetrieverWebSearch(index.as_retriever(), "a second local corpus in place of the web")


def _documents(name: str, source: str) -> Iterator[Document]:
    for row in _rows(name):
        yield Document(row["text"], metadata={"title": row["title"], "source": source})


def _rows(name: str) -> Iterator[dict[str, Any]]:
    yield from map(json.loads, (CORPUS / name).read_text(encoding="utf-8").splitlines())
