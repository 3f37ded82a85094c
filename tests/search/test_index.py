"""What all kinds of index do alike."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import chromadb
import pytest
from langchain_core.documents import Document
from pydantic import ValidationError

from selfcorrect_rag.search import BM25Index, ChromaIndex, Index, bm25
from selfcorrect_rag.search.bm25 import write_scores
from selfcorrect_rag.search.chroma import CLIENT_ATTEMPTS, EmbedderMismatch, embedder_name
from selfcorrect_rag.search.index import UnreadableIndex

from .conftest import MakeIndex
from .stand_ins import OtherWordHash, WordHash

OURS = pytest.mark.parametrize("make_index", ["chroma", "bm25"], indirect=True)

ANIMALS = [
    Document("cats chase mice at night", metadata={"title": "Cats"}),
    Document("horses run over open fields", metadata={"title": "Horses"}),
    Document("whales sing below open water", metadata={"title": "Whales"}),
]


@pytest.mark.parametrize("failures", [1, CLIENT_ATTEMPTS])
def test_a_database_that_another_process_is_making(
    failures: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, made = chromadb.PersistentClient, iter(range(failures))

    def client(*given: Any, **options: Any) -> Any:
        if next(made, None) is not None:
            raise chromadb.errors.InternalError("(code: 1) table collections already exists")
        return real(*given, **options)

    monkeypatch.setattr(chromadb, "PersistentClient", client)
    monkeypatch.setattr("selfcorrect_rag.search.chroma.time.sleep", lambda seconds: None)
    if failures == CLIENT_ATTEMPTS:
        with pytest.raises(UnreadableIndex, match="already exists"):
            ChromaIndex(tmp_path, WordHash())
    else:
        with ChromaIndex(tmp_path, WordHash()) as index:
            assert index.add(ANIMALS) == 3


@OURS
def test_finds_the_best_first_with_id_metadata_and_score(index: Index) -> None:
    assert index.add(ANIMALS) == len(index) == 3
    first, second = index.search("who runs over open fields", k=2)
    assert (first.page_content, first.metadata["title"]) == (ANIMALS[1].page_content, "Horses")
    assert second.metadata["title"] == "Whales"
    assert first.metadata["score"] > second.metadata["score"]
    assert {first.id, second.id} < index.ids()


@OURS
def test_the_title_is_searched_too(index: Index) -> None:
    index.add([Document("it was built in 1889", metadata={"title": "Eiffel"}), *ANIMALS])
    assert index.search("eiffel", k=1)[0].page_content == "it was built in 1889"


def test_adding_again_adds_nothing(index: Index, make_index: MakeIndex) -> None:
    assert index.add(ANIMALS) == 3
    assert index.add([*ANIMALS, ANIMALS[0]]) == 0
    index.close()
    assert make_index().add(ANIMALS) == 0
    assert len(make_index()) == 3


def test_adding_again_renews_metadata(index: Index) -> None:
    index.add([Document("cats", metadata={"url": "old", "year": 1990})])
    index.add([Document("cats", metadata={"url": "new"})])
    (found,) = index.search("cats")
    found.metadata.pop("score", None)
    assert found.metadata == {"url": "new"}


def test_ids_depend_on_title_and_text_alone(make_index: MakeIndex) -> None:
    one, other = make_index("one"), make_index("other")
    one.add(ANIMALS)
    other.add([Document(d.page_content, metadata={**d.metadata, "n": 1}) for d in ANIMALS[::-1]])
    assert one.ids() == other.ids()
    other.add([Document(ANIMALS[0].page_content, metadata={"title": "Other"})])
    assert len(other) == 4


def test_ids_are_the_same_in_every_version(index: Index) -> None:
    index.add([Document("cats", metadata={"title": "Cats"})])
    assert index.ids() == {"77f480eee022f5d593f59e25e55929ea"}


def test_deleted_passages_are_not_found(index: Index) -> None:
    index.add(ANIMALS)
    (cat,) = index.search("cats mice", k=1)
    index.delete([str(cat.id), "never there"])
    index.delete([])
    assert len(index) == 2
    assert all(found.metadata["title"] != "Cats" for found in index.search("cats mice"))


async def test_an_empty_index_finds_nothing(index: Index) -> None:
    assert len(index) == 0
    assert index.search("anything") == await index.asearch("anything") == []
    retriever = index.as_retriever()
    assert retriever.invoke("anything") == await retriever.ainvoke("anything") == []


async def test_sync_and_async_find_the_same(index: Index) -> None:
    index.add(ANIMALS)
    retriever = index.as_retriever(k=2)
    assert retriever.invoke("open fields") == await retriever.ainvoke("open fields")
    assert index.search("open fields", 3) == await index.asearch("open fields", 3)
    assert len(retriever.invoke("open fields")) == 2


async def test_searching_leaves_the_event_loop_free(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add(ANIMALS)
    name = "_nearest" if isinstance(index, ChromaIndex) else "search"
    inner, threads = getattr(index, name), []

    def spy(*args: Any) -> Any:
        threads.append(threading.current_thread())
        return inner(*args)

    monkeypatch.setattr(index, name, spy)
    await index.asearch("open fields")
    assert threads != [threading.current_thread()]


@pytest.mark.parametrize("query", ["", " ", "the of", "\0", "\ud800", "word " * 10_000, "[SEP]"])
def test_odd_queries_are_no_error(index: Index, query: str) -> None:
    index.add(ANIMALS)
    assert len(index.search(query, k=100)) <= 3


def test_a_retriever_wants_at_least_one_passage(index: Index) -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        index.as_retriever(k=0)


def test_hostile_metadata_is_stored_as_scalars(index: Index) -> None:
    metadata: dict[Any, Any] = {
        "none": None,
        "list": [1, "a", None],
        "empty": [],
        "nested": {"a": {"b": 1}},
        "huge": 2**70,
        "nan": float("nan"),
        "bytes": b"x",
        "broken": "x\ud800\0",
        "": "nameless",
        7: "number",
        "#sparse": 1,
        "chroma:document": "mine",
        "true": True,
        "real": 0.5,
        "object": object,
    }
    metadata["circle"] = metadata["list"] = [metadata["list"]]
    index.add([Document("cats \ud800\0", metadata=metadata)])
    (found,) = index.search("cats")
    found.metadata.pop("score", None)
    assert found.page_content == "cats \ufffd\ufffd"
    assert found.metadata == {
        "list": '[[1, "a", null]]',
        "circle": '[[1, "a", null]]',
        "empty": "[]",
        "nested": '{"a": {"b": 1}}',
        "huge": str(2**70),
        "nan": "nan",
        "bytes": "\"b'x'\"",
        "broken": "x\ufffd\ufffd",
        "7": "number",
        "sparse": 1,
        "document": "mine",
        "true": True,
        "real": 0.5,
        "object": "\"<class 'object'>\"",
    }


def test_documents_without_text_are_left_out(index: Index) -> None:
    assert index.add([Document(""), Document(" \n"), Document("x y")]) == len(index) == 1


def test_batches_are_told_as_they_are_written(index: Index) -> None:
    sizes: list[int] = []
    index.add((Document(f"passage {i}") for i in range(10)), batch_size=4, on_batch=sizes.append)
    assert sizes == [4, 4, 2]


def test_readers_of_one_index_do_not_disturb_each_other(index: Index) -> None:
    index.add(Document(f"alpha{i} beta{i} gamma") for i in range(200))
    retriever = index.as_retriever(k=3)

    def first(i: int) -> str:
        return retriever.invoke(f"alpha{i} beta{i}")[0].page_content

    expected = [first(i) for i in range(200)]
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(first, range(200))) == expected

    async def together() -> list[list[Document]]:
        return await asyncio.gather(*(retriever.ainvoke(f"alpha{i} beta{i}") for i in range(50)))

    assert [found[0].page_content for found in asyncio.run(together())] == expected[:50]


def test_a_second_view_of_an_index_outlives_the_first(make_index: MakeIndex) -> None:
    first, second = make_index(), make_index()
    first.add(ANIMALS)
    first.close()
    assert second.search("cats mice", k=1)[0].metadata["title"] == "Cats"


def test_a_view_sees_what_another_writes(make_index: MakeIndex) -> None:
    reader, writer = make_index(), make_index()
    assert reader.search("cats mice") == []
    writer.add(ANIMALS)
    assert reader.search("cats mice", k=1)[0].metadata["title"] == "Cats"


def test_a_relative_path_is_of_the_folder_that_it_is_opened_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        index = ChromaIndex("index", WordHash())  # left open, as by a program that changes folders
        index.add([Document(f"gold in {name}")])
        found.append([hit.page_content for hit in index.search("gold", 5)])
    assert found == [["gold in one"], ["gold in two"]]


def test_other_embeddings_are_refused(tmp_path: Path) -> None:
    with ChromaIndex(tmp_path, WordHash()) as index:
        index.add(ANIMALS)
    with pytest.raises(EmbedderMismatch, match=r"indexed with .*:WordHash, not with .*:OtherWord"):
        ChromaIndex(tmp_path, OtherWordHash())
    with pytest.raises(EmbedderMismatch, match="not with all-MiniLM-L6-v2 sha256:53aa51172d142c89"):
        ChromaIndex(tmp_path)
    with ChromaIndex(tmp_path, WordHash()) as index:
        assert len(index) == 3


def test_an_embedder_is_known_by_its_class_and_model() -> None:
    embeddings = WordHash()
    assert embedder_name(embeddings) == "tests.search.stand_ins:WordHash"
    embeddings.model = "words-2"  # type: ignore[attr-defined]
    assert embedder_name(embeddings) == "tests.search.stand_ins:WordHash words-2"


def test_bm25_keeps_its_scores_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BM25Index(tmp_path).add(ANIMALS)
    found = BM25Index(tmp_path).search("open fields")
    again = BM25Index(tmp_path)
    monkeypatch.setattr(again, "_new_scores", None)
    assert again.search("open fields") == found


def test_bm25_renews_its_scores_when_passages_change(tmp_path: Path) -> None:
    index = BM25Index(tmp_path)
    index.add(ANIMALS)
    index.search("open")
    index.add([Document("doors stand open")])
    assert len(BM25Index(tmp_path).search("open")) == len(index.search("open")) == 3
    assert len(list(tmp_path.glob("scores-*"))) == 1
    assert not list(tmp_path.glob("new-*"))


def test_bm25_sweeps_up_after_a_process_that_was_killed(tmp_path: Path) -> None:
    for name, seconds in (("new-yesterday", 10), ("new-today", time.time())):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (seconds, seconds))
    index = BM25Index(tmp_path)
    index.add(ANIMALS)
    assert index.search("open")
    assert [path.name for path in tmp_path.glob("new-*")] == ["new-today"]


def test_bm25_can_be_written_to_while_scores_are_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = BM25Index(tmp_path)
    index.add(ANIMALS)

    def write_and_compute(folder: Path, passages: Any) -> None:
        first = next(passages)
        BM25Index(tmp_path).add([Document("doors stand open")])
        write_scores(folder, [first, *passages])

    monkeypatch.setattr(bm25, "write_scores", write_and_compute)
    assert len(index.search("open")) >= 2
    assert not list(tmp_path.glob("scores-*")), "they are of no version"
    monkeypatch.undo()
    assert len(index.search("open")) == 3


SEARCHING = """
    import sys
    from selfcorrect_rag.search import BM25Index

    passages = 0
    while passages < 150:
        index = BM25Index(sys.argv[1])
        passages = len(index)
        found = [document.page_content for document in index.search("apple word7", 3)]
        assert "apple word7" == found[0], found
        assert len(found) == 3, found
"""


def test_bm25_is_searched_by_processes_while_another_writes(tmp_path: Path) -> None:
    index = BM25Index(tmp_path)
    index.add(Document(f"apple word{i}") for i in range(50))
    command = [sys.executable, "-c", textwrap.dedent(SEARCHING), str(tmp_path)]
    readers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    while not list(tmp_path.glob("scores-*")) and all(reader.poll() is None for reader in readers):
        time.sleep(0.01)
    for i in range(50, 150):
        index.add([Document(f"apple word{i} " + "x" * (i % 20))])
        index.search("apple")
    assert [reader.communicate(timeout=60)[1] for reader in readers] == [""] * 3
    index.search("apple")
    assert len(list(tmp_path.glob("scores-*"))) == 1
    assert not list(tmp_path.glob("new-*"))


@pytest.mark.parametrize(("kind", "module"), [(ChromaIndex, "chromadb"), (BM25Index, "bm25s")])
def test_a_missing_library_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Index], module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'pip install "selfcorrect-rag\[(chroma|bm25)\]"'):
        kind(tmp_path).search("x")  # type: ignore[call-arg]
