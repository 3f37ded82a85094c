"""Samples that rationales are made for: a question, its answers and what a retriever found."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.search.json_rows import row_passages
from selfcorrect_rag.training.rows import read_rows


@dataclass(frozen=True)
class Sample:
    """A question, the answers that are correct, and what a retriever found, best first."""

    question: str
    answers: tuple[str, ...]
    documents: tuple[Document, ...]

    @cached_property
    def digest(self) -> str:
        """Fingerprint of the sample, the same in any run."""
        texts = [[title(document), document.page_content] for document in self.documents]
        whole = json.dumps([self.question, self.answers, texts])
        return hashlib.sha256(whole.encode()).hexdigest()[:32]


def read_samples(path: Path, *, answered: bool = True) -> list[Sample]:
    """Rows ``{"question": ..., "answers": [...], "documents": [{"title": ..., "text": ...}]}``.

    One row a line, or one JSON list of them. The official files are read too: documents are
    ``ctxs`` there, and ASQA's answers may be in ``qa_pairs``. Documents stand best first, unless
    each has a numeric ``score``: then the highest is first.

    Args:
        answered: whether each row must have answers.

    Raises:
        BadTrainingData: the file or a row is not so; the message names file and line.
    """
    samples = []
    for place, row in read_rows(path):
        try:
            samples.append(_sample(row, answered))
        except ValueError as error:
            raise BadTrainingData(f"{place}: {error}") from error
    if not samples:
        raise BadTrainingData(f"{path} holds no rows")
    return samples


def _sample(row: Any, answered: bool) -> Sample:
    if not isinstance(row, dict):
        raise ValueError('not {"question": ..., "answers": [...], "documents": [...]}')
    question = row.get("question")
    if not isinstance(question, str) or not question.strip():
        raise ValueError("no question")
    answers = _answers(row)
    if answered and not answers:
        raise ValueError("no answers")
    return Sample(question.strip(), answers, _documents(row))


def _answers(row: dict[str, Any]) -> tuple[str, ...]:
    given = row.get("answers") or [
        answer for pair in _items(row, "qa_pairs") for answer in _items(pair, "answers")
    ]
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, list) or not all(isinstance(answer, str) for answer in given):
        raise ValueError("answers are not a list of texts")
    return tuple(dict.fromkeys(answer.strip() for answer in given if answer.strip()))


def _items(row: Any, key: str) -> list[Any]:
    items = row.get(key) if isinstance(row, dict) else None
    return items if isinstance(items, list) else []


def _documents(row: dict[str, Any]) -> tuple[Document, ...]:
    given = row.get("documents", row.get("ctxs"))
    if not isinstance(given, list):
        raise ValueError("no list of documents (or ctxs)")
    documents = []
    for number, item in enumerate(given, start=1):
        found = list(row_passages(item))
        if len(found) != 1 or not found[0].page_content.strip():
            raise ValueError(f"document {number} has no text")
        documents += found
    return _best_first(documents)


def _best_first(documents: list[Document]) -> tuple[Document, ...]:
    try:
        scores = [float(document.metadata["score"]) for document in documents]
    except (KeyError, TypeError, ValueError):
        return tuple(documents)
    order = sorted(range(len(documents)), key=lambda i: -scores[i])
    return tuple(documents[i] for i in order)


def title(document: Document) -> str:
    """Its title, "" where it has none."""
    return str(document.metadata.get("title") or "")
