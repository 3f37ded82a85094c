from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from selfcorrect_rag.search import BM25Index, ChromaIndex, Index, MiniLM, StoreIndex

from .stand_ins import WordHash

MakeIndex = Callable[..., Index]


@pytest.fixture(scope="session")
def minilm() -> MiniLM:
    return MiniLM(device="cpu")


@pytest.fixture(params=["chroma", "bm25", "store"])
def make_index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeIndex]:
    """Makes, or opens again, the index called ``name``, of each kind in turn."""
    stores: dict[str, VectorStore] = {}
    with ExitStack() as open_indexes:

        def make(name: str = "index") -> Index:
            path = tmp_path / "indexes" / name
            if request.param == "store":
                store = stores.setdefault(name, InMemoryVectorStore(WordHash()))
                return open_indexes.enter_context(StoreIndex(path, store))
            index = ChromaIndex(path, WordHash()) if request.param == "chroma" else BM25Index(path)
            return open_indexes.enter_context(index)

        yield make


@pytest.fixture
def index(make_index: MakeIndex) -> Index:
    return make_index()


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder
