"""langchain-tests' standard suite for the retrievers of both indexes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_tests.integration_tests import RetrieversIntegrationTests

from selfcorrect_rag.search import BM25Index, ChromaIndex, Index

from .stand_ins import WordHash


class IndexSuite(RetrieversIntegrationTests):
    """The suite makes retrievers by itself, of one index that is filled before."""

    @pytest.fixture(autouse=True)
    def filled(self, tmp_path: Path) -> Iterator[None]:
        with self.make(tmp_path) as index:
            index.add([Document(f"Passage number {i} of the book.") for i in range(10)])
            self.index = index
            yield

    def make(self, path: Path) -> Index:
        raise NotImplementedError

    @property
    def retriever_constructor(self) -> Any:
        def construct(k: int = 5) -> BaseRetriever:
            return self.index.as_retriever(k=k)

        return construct

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {}

    @property
    def retriever_query_example(self) -> str:
        return "passage of the book"


class TestChroma(IndexSuite):
    def make(self, path: Path) -> Index:
        return ChromaIndex(path, WordHash())


class TestBM25(IndexSuite):
    def make(self, path: Path) -> Index:
        return BM25Index(path)


del IndexSuite
