import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.search import BM25Index, ChromaIndex, open_index, open_retriever
from selfcorrect_rag.search.chroma import EmbedderMismatch
from selfcorrect_rag.search.open_index import BadName, NoIndex, open_or_make_index

from .stand_ins import WordHash

STAND_INS = "tests.search.stand_ins"


def test_the_kind_is_known_from_the_folder(tmp_path: Path) -> None:
    open_or_make_index(tmp_path / "chroma", f"{STAND_INS}:WordHash").close()
    open_or_make_index(tmp_path / "bm25", "bm25").close()
    open_or_make_index(tmp_path / "minilm").close()
    assert isinstance(open_index(tmp_path / "chroma", WordHash()), ChromaIndex)
    assert isinstance(open_index(tmp_path / "bm25"), BM25Index)
    assert isinstance(open_or_make_index(tmp_path / "bm25"), BM25Index)
    assert open_index(tmp_path / "minilm").embedder.startswith("all-MiniLM-L6-v2")


async def test_a_retriever_from_a_folder(tmp_path: Path) -> None:
    with ChromaIndex(tmp_path, WordHash()) as index:
        index.add([Document("cats chase mice"), Document("whales sing")])
    retriever = open_retriever(tmp_path, k=1, embeddings=WordHash())
    (found,) = await retriever.ainvoke("do cats chase")
    assert found.page_content == "cats chase mice"


def test_no_index_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(NoIndex, match=r"holds no index: selfcorrect-rag index PATH\.\.\. --index"):
        open_retriever(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_embeddings_of_ones_own_must_be_given_again(tmp_path: Path) -> None:
    open_or_make_index(tmp_path, f"{STAND_INS}:instance").close()
    with pytest.raises(EmbedderMismatch, match="WordHash"):
        open_index(tmp_path)


def test_one_folder_holds_one_kind(tmp_path: Path) -> None:
    open_or_make_index(tmp_path / "bm25", "bm25").close()
    open_or_make_index(tmp_path / "minilm", "minilm").close()
    with pytest.raises(NoIndex, match="holds a BM25 index"):
        open_or_make_index(tmp_path / "bm25", "minilm")
    with pytest.raises(NoIndex, match="holds another index"):
        open_or_make_index(tmp_path / "minilm", "bm25")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("minilmm", "neither minilm, bm25 nor"),
        ("no.such.module:x", "No module named"),
        (f"{STAND_INS}:nothing", "has no attribute"),
        (f"{STAND_INS}:not_embeddings", "is int, not LangChain Embeddings"),
        (":x", "neither minilm, bm25 nor"),
    ],
)
def test_a_name_that_leads_nowhere(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(BadName, match=reason):
        open_or_make_index(tmp_path / "index", name)
    assert not (tmp_path / "index").exists()


OPENING = """
    import sys
    from pathlib import Path
    from selfcorrect_rag.search import index_paths, open_index
    from tests.search.stand_ins import WordHash

    path = Path(sys.argv[1])
    try:
        with open_index(path, WordHash() if path.name == "chroma" else None) as index:
            index.search("passage")
            index_paths([__file__], index)
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize("kind", ["bm25", "chroma"])
def test_a_permission_that_is_missing_is_named(tmp_path: Path, kind: str) -> None:
    folder, script = tmp_path / kind, tmp_path / "opening.txt"
    file = folder / f"{kind}.sqlite3"
    script.write_text(textwrap.dedent(OPENING))
    with BM25Index(folder) if kind == "bm25" else ChromaIndex(folder, WordHash()) as index:
        index.add([Document("passage")])
        index.search("passage")
    lesser = []
    if os.geteuid() == 0:  # who may read everything
        powers = "-dac_override,-dac_read_search"
        lesser = ["setpriv", f"--bounding-set={powers}", f"--inh-caps={powers}"]
    said = []
    for path, mode in ((folder, 0), (file, 0), (folder, 0o500)):
        before = path.stat().st_mode
        path.chmod(mode)
        command = [*lesser, sys.executable, str(script), str(folder)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        path.chmod(before)
        assert not done.stderr
        said.append(done.stdout)
    closed, unreadable, read_only = said
    assert closed.startswith("UnreadableIndex")
    assert f"no permission to read {folder}\n" in closed
    assert unreadable.startswith("UnreadableIndex")
    assert f"no permission to read {file}\n" in unreadable
    assert read_only.startswith("ReadOnlyIndex")
    assert "make it writable" in read_only
