"""An index on the disk: what it finds, what it refuses, and that it sees what others write."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from selfcorrect_rag.errors import ModelFailed
from selfcorrect_rag.search import Index, NoIndex, is_index, open_index
from selfcorrect_rag.search.index import EmbedderMismatch, UnreadableIndex

from .stand_ins import WordHash, texts


def passage(text: str, **metadata: Any) -> Document:
    return Document(text, metadata={"title": "Notes", **metadata})


def test_it_finds_by_words_and_vectors_and_opens_again(index: Index) -> None:
    assert index.search("anything") == []
    added = index.add([passage("Room 0 is red."), passage("Room 1 is blue.")])
    assert (added, len(index)) == (2, 2)
    (found,) = index.search("blue", 1)
    assert found.page_content == "Room 1 is blue."
    assert found.metadata == {"title": "Notes", "score": 1.0}
    again = open_index(index.path, index.embeddings)
    assert texts(again.search("red", 1)) == ["Room 0 is red."]
    assert index.add([passage(" \n ")]) == 0


def test_the_fusion_finds_what_one_ranking_misses(hybrid: Index) -> None:
    hybrid.add([passage("alpha beta"), passage("gamma delta"), passage("beta gamma")])
    for ranking in ("dense", "bm25", "hybrid"):
        assert texts(hybrid.search("gamma delta", 1, ranking=ranking)) == ["gamma delta"]
    assert len(hybrid.search("delta", 3, ranking="bm25")) == 1
    assert len(hybrid.search("delta", 3)) == 3


def test_copies_are_one_passage_with_their_sources(index: Index) -> None:
    copies = [passage("Visitors park on deck B.", source=f"/copy{i}.md") for i in range(60)]
    index.add([*copies, passage("Bicycles park elsewhere.", source="/other.md")])
    first, second = index.search("Where do visitors park?", 2)
    assert first.metadata["sources"] == sorted(f"/copy{i}.md" for i in range(60))
    assert second.page_content == "Bicycles park elsewhere."
    assert len(index) == 2


def test_windows_of_one_page_do_not_fill_all_places(index: Index) -> None:
    index.add(passage(f"pump pump {i}", source="/a.pdf", page=1, chunk=i) for i in range(20))
    index.add(passage(f"a pump {i}", source=f"/{i}.txt", chunk=0) for i in range(5))
    found = index.search("pump", 5)
    assert [d.metadata["source"] for d in found].count("/a.pdf") == 2
    assert len(index.search("pump", 25)) == 25  # if there is nothing else, they do


def test_adding_again_renews_metadata_and_embeds_nothing(hybrid: Any) -> None:
    assert hybrid.add([passage("The door is red.", old=1)]) == 1
    assert hybrid.add([passage("The door is red.", new=[1, {"x": 2}], gone=None)]) == 0
    assert hybrid.embeddings.embedded == 1
    (found,) = hybrid.search("door", filter={"title": "Notes"})
    assert found.metadata == {"title": "Notes", "new": [1, {"x": 2}], "gone": None, "score": 1.0}


def test_any_text_and_metadata_can_be_stored(index: Index) -> None:
    odd = {7: 2**70, "n": float("nan"), "half": "\ud83d", "set": {1}, "deep": {"a": [None]}}
    index.add([Document("half \ud83d an emoji\0", metadata=odd)])
    (found,) = index.search("emoji")
    assert (found.metadata["7"], found.metadata["set"]) == (2**70, "{1}")
    assert found.metadata["deep"] == {"a": [None]}


def test_other_embeddings_are_refused(tmp_path: Path) -> None:
    class Other(WordHash):
        pass

    Index(tmp_path / "index", WordHash()).add([passage("x")])
    for other in (Other(), "bm25", None):
        with pytest.raises(EmbedderMismatch, match=r"was indexed with .*WordHash, not with"):
            open_index(tmp_path / "index", other)  # type: ignore[arg-type]


@pytest.mark.parametrize("vectors", ["few", "nan", "raise"])
def test_embeddings_that_fail_are_named_and_nothing_is_lost(tmp_path: Path, vectors: str) -> None:
    class Bad(WordHash):
        broken = False

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            if not self.broken:
                return super().embed_documents(texts)
            if vectors == "raise":
                raise RuntimeError("no such model, key sk-abcdefghijklmnop")
            return [[float("nan")] * 64] * (len(texts) - (vectors == "few"))

    index = Index(tmp_path / "index", Bad())
    index.add([passage("The first.")])
    Bad.broken = True
    with pytest.raises(ModelFailed, match="the embeddings raised") as raised:
        index.add([passage("The second.")])
    assert "sk-abc" not in str(raised.value)
    Bad.broken = False
    assert (index.add([passage("The second.")]), len(index.search("second", 5))) == (1, 2)


def test_folders_that_are_no_index(tmp_path: Path) -> None:
    with pytest.raises(NoIndex, match=r"holds no index: selfcorrect-rag index PATH\.\.\. --index"):
        open_index(tmp_path / "none")
    for file in ("notes.md", "chroma.sqlite3"):
        (tmp_path / file[:4]).mkdir()
        (tmp_path / file[:4] / file).touch()
        with pytest.raises(NoIndex, match=r"^\S+ holds other files, or an index of an earlier"):
            Index(tmp_path / file[:4], "bm25")
    assert not is_index(tmp_path)


def test_an_index_of_an_earlier_layout_or_a_damaged_one_is_refused(index: Index) -> None:
    with sqlite3.connect(index.path / "index.sqlite3") as database:
        database.execute("UPDATE meta SET value = 2 WHERE key = 'layout'")
    with pytest.raises(NoIndex, match="earlier version: index again, into a new or empty folder"):
        open_index(index.path)
    (index.path / "index.sqlite3").write_bytes(b"nothing" * 1000)
    with pytest.raises(UnreadableIndex, match=r"not open as an index .*index into a new folder"):
        open_index(index.path, index.embeddings or "bm25")


def test_removed_passages_leave_no_vectors_and_copies_keep_theirs(hybrid: Index) -> None:
    gone = [passage(f"A red door {i}.", source="/gone.md") for i in range(100)]
    copy = passage("A red door 7.", source="/copy.md")
    hybrid.add([*gone, copy, passage("The roof is flat.", source="/roof.md")])
    with hybrid.writing():
        assert hybrid.finish("/gone.md", set()) == 100
    found = hybrid.search("A red door 7.", 5, ranking="dense")
    assert texts(found) == ["A red door 7.", "The roof is flat."]


def test_files_are_private(index: Index) -> None:
    index.add([passage("x")])
    index.search("x")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in index.path.rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert stat.S_IMODE(index.path.stat().st_mode) == 0o700


def test_two_writers_exclude_each_other(index: Index) -> None:
    other = Index(index.path, index.embeddings or "bm25")
    with index.writing():
        with pytest.raises(UnreadableIndex, match=r"another process is writing .*run again when"):
            other.add([passage("x")])
        assert other.search("x") == []
    assert other.add([passage("x")]) == 1


def test_threads_may_search_while_another_writes(hybrid: Index) -> None:
    hybrid.add([passage("door 0")])

    def ask() -> bool:
        return all(hybrid.search("door", 3) for _ in range(20))

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask) for _ in range(3)]
        for i in range(1, 6):
            hybrid.add([passage(f"door {i}")])
    assert all(each.result() for each in asked)


WRITER = """
import sys
from langchain_core.documents import Document
from selfcorrect_rag.search import open_index
from tests.search.stand_ins import WordHash
index = open_index(sys.argv[1], "bm25" if sys.argv[2] == "bm25" else WordHash())
index.add([Document("The door is green now.")])
with index.writing():
    index.finish("/door.md", set())
"""


@pytest.mark.slow
def test_an_open_index_sees_what_another_process_writes(index: Index) -> None:
    index.add([passage("The door is red.", source="/door.md"), passage("The roof is flat.")])
    retriever = index.as_retriever(2)
    assert texts(retriever.invoke("door"))[0] == "The door is red."
    kind = "hybrid" if index.embeddings else "bm25"
    run = [sys.executable, "-c", WRITER, str(index.path), kind]
    subprocess.run(run, check=True)
    assert texts(retriever.invoke("door"))[0] == "The door is green now."
    if index.embeddings:  # by vectors alone, of which Chroma keeps what it opened
        (found, *_) = index.search("The door is green now.", ranking="dense")
        assert found.page_content == "The door is green now."
    roof = ["The roof is flat."] if index.embeddings else []
    assert texts(index.search("door red", 5)) == ["The door is green now.", *roof]


@pytest.mark.slow
def test_a_forked_process_searches_an_index_that_was_open(hybrid: Index) -> None:
    hybrid.add([passage("The door is red.")])
    assert hybrid.search("door")
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        os._exit(0 if hybrid.search("door") else 1)
    assert os.waitpid(pid, 0) == (pid, 0)


def test_the_default_embeddings_are_the_readers(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    index = Index(tmp_path / "index")
    index.add([passage("The physician treats patients."), passage("The tractor ploughs a field.")])
    assert texts(index.search("doctor", 1)) == ["The physician treats patients."]
    assert isinstance(open_index(index.path).embeddings, Embeddings)
