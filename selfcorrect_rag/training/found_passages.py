"""Retrieval for many rows: queries in batches, each once; what is found is kept in a file."""

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.errors import RetrievalFailed
from selfcorrect_rag.errors.messages import describe_error
from selfcorrect_rag.training.augmentation import Passage
from selfcorrect_rag.training.journal import Journal

QUERIES = 64
"""That go to the retriever in one batch."""


class Search:
    """A retriever, as Algorithm 3 asks it."""

    def __init__(self, retriever: Runnable[str, list[Document]], max_concurrency: int) -> None:
        self._retriever = retriever
        self._config = RunnableConfig(max_concurrency=max_concurrency)
        self.queries = 0
        """Asked so far."""

    def find(self, queries: Sequence[str], kept: Path) -> list[list[Passage]]:
        """Passages for each query, best first; those in the file ``kept`` are not looked for.

        Raises:
            RetrievalFailed: the retriever raised; what came before is kept.
        """
        found = _Found(queries, kept)
        for batch in found.missing():
            try:
                self._keep(found, batch, self._retriever.batch(batch, self._config))
            except Exception as error:
                raise _failed(error) from error
        return found.passages()

    async def afind(self, queries: Sequence[str], kept: Path) -> list[list[Passage]]:
        """The async twin of :meth:`find`."""
        found = _Found(queries, kept)
        for batch in found.missing():
            try:
                self._keep(found, batch, await self._retriever.abatch(batch, self._config))
            except Exception as error:
                raise _failed(error) from error
        return found.passages()

    def _keep(
        self, found: "_Found", batch: Sequence[str], documents: Sequence[Sequence[Document]]
    ) -> None:
        self.queries += len(batch)
        found.keep(batch, documents)


class _Found:
    """The queries of one call, and what is known of them."""

    def __init__(self, queries: Sequence[str], kept: Path) -> None:
        self._queries, self._journal = queries, Journal(kept)

    def missing(self) -> Iterator[list[str]]:
        """Batches of what has still to be looked for."""
        once = [q for q in dict.fromkeys(self._queries) if _key(q) not in self._journal.rows]
        for start in range(0, len(once), QUERIES):
            yield once[start : start + QUERIES]

    def keep(self, queries: Sequence[str], found: Sequence[Sequence[Document]]) -> None:
        for query, documents in zip(queries, found, strict=True):
            passages = [_passage(d) for d in documents if d.page_content.strip()]
            row = {"query": query, "passages": [dataclasses.asdict(p) for p in passages]}
            self._journal.append(_key(query), row)

    def passages(self) -> list[list[Passage]]:
        """For each query; no two lists share a passage."""
        rows = [self._journal.rows[_key(query)] for query in self._queries]
        return [[Passage(**passage) for passage in row["passages"]] for row in rows]


def _key(query: str) -> str:
    return hashlib.sha256(query.encode(errors="surrogatepass")).hexdigest()[:32]


def _passage(document: Document) -> Passage:
    title = str(document.metadata.get("title") or "").replace("\n", " ")
    score = document.metadata.get("score")
    return Passage(
        id=str(document.id or ""),
        title=title,
        text=document.page_content,
        score=float(score) if isinstance(score, int | float) else None,
    )


def _failed(error: Exception) -> RetrievalFailed:
    return RetrievalFailed(f"{describe_error(error)}; the same command goes on from here")
