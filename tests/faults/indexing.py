"""Faults while files go into an index."""

import gc
import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pypdf
import pytest
from langchain_core.vectorstores import InMemoryVectorStore

from selfcorrect_rag.search import (
    BM25Index,
    ChromaIndex,
    Index,
    IndexReport,
    StoreIndex,
    index_paths,
    loading,
)
from selfcorrect_rag.search.bm25 import load_scores
from tests.faults.cases import Seen, fault
from tests.search.stand_ins import OtherWordHash, WordHash, pdf

ROOT = Path(__file__).parents[2]
GOOD = {"title": "Good", "text": "a good passage"}


def said(report: IndexReport) -> list[str]:
    return [f"{problem.path}: {problem.reason}" for problem in report.problems]


def beside_a_good_one(tmp_path: Path, make: Callable[[Path], None], **options: Any) -> Seen:
    """Index what ``make`` makes in a folder, where a good file is too, and find the good one."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "good.json").write_text(json.dumps(GOOD))
    make(docs)
    index = BM25Index(tmp_path / "index")
    report = index_paths([docs], index, **options)
    assert index.search("good")[0].page_content == GOOD["text"]
    sources = [found.metadata["source"] for found in index.search("passage", 100)]
    return Seen(None, [*said(report), *sources], "yes")


def file_of(name: str, data: bytes, **options: Any) -> Callable[[Path], Seen]:
    def provoke(tmp_path: Path) -> Seen:
        return beside_a_good_one(
            tmp_path, lambda docs: void((docs / name).write_bytes(data)), **options
        )

    return provoke


def raised_by(run: Callable[[], object]) -> BaseException:
    try:
        run()
    except Exception as error:
        return error
    pytest.fail("nothing was raised")


def void(value: object) -> None:
    """For a function of which nothing is wanted."""


def encrypted() -> bytes:
    writer, file = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("secret"))), io.BytesIO()
    writer.encrypt("password", algorithm="RC4-128")
    writer.write(file)
    return file.getvalue()


def blown_up() -> bytes:
    """A PDF whose page is 100 KB on the disk and 100 MB when read."""
    zeros = zlib.compress(b" " * 100_000_000)
    page = pdf("page").replace(b"<< /Length 37 >>", b"<< >>")
    start = page.index(b"<< /Length", page.index(b"5 0 obj"))
    end = page.index(b"endobj", start)
    body = b"<< /Length %d /Filter /FlateDecode >>\nstream\n%b\nendstream\n" % (len(zeros), zeros)
    return page[:start] + body + page[end:]


def unpacking_to(size: int) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", bytes(size))
    return file.getvalue()


for name, case in {
    "Word, PowerPoint or Excel file that blows up": file_of(
        "a.docx", unpacking_to(5 * 2**20), max_bytes=16 * 2**20
    ),
    "PDF that is broken": file_of("a.pdf", pdf("page")[:200]),
    "PDF that is encrypted": file_of("a.pdf", encrypted()),
    "PDF that blows up": file_of("a.pdf", blown_up()),
    "gzip that blows up": file_of("a.txt.gz", gzip.compress(b"x" * 2**24), max_bytes=2**20),
    "NUL bytes in a text": file_of("a.txt", b"\x7fELF\0\0"),
    "another encoding than UTF-8": file_of("a.txt", "Zürich passage".encode("latin-1")),
    "half an emoji in JSON": file_of("a.json", b'{"text": "half \\ud83d of it"}'),
    "JSON nested too deeply": file_of("a.json", b"[" * 100_000),
    "file that is too large": file_of("a.txt", b"x" * (2**20 + 1), max_bytes=2**20),
}.items():
    fault("Indexing", name)(case)


@fault("Indexing", "link out of the folder")
def _(tmp_path: Path) -> Seen:
    secret = tmp_path / "secret.txt"
    secret.write_text("root passage 0:0")
    seen = beside_a_good_one(tmp_path, lambda docs: (docs / "link.txt").symlink_to(secret))
    assert not any(line.endswith("/link.txt") for line in seen.says), "it is not in the index"
    return seen


@fault("Indexing", "pipe or socket")
def _(tmp_path: Path) -> Seen:
    return beside_a_good_one(tmp_path, lambda docs: os.mkfifo(docs / "pipe.txt"))


@fault("Indexing", "file name that is no text")
def _(tmp_path: Path) -> Seen:
    def make(docs: Path) -> None:
        with open(os.fsencode(docs) + b"/\xff.txt", "w") as file:
            file.write("passage")

    return beside_a_good_one(tmp_path, make)


@fault("Indexing", "file that changes while it is read")
def _(tmp_path: Path) -> Seen:
    docs, index = tmp_path / "docs", BM25Index(tmp_path / "index")
    docs.mkdir()
    rows = "".join(json.dumps({"text": f"passage {i}"}) + "\n" for i in range(20))
    (docs / "a.jsonl").write_text(rows)

    def change(progress: object) -> None:
        (docs / "a.jsonl").write_text(rows * 2)

    report = index_paths([docs], index, batch_size=10, on_progress=change)
    again = index_paths([docs], index)
    assert (again.files, again.unchanged, again.passages, again.problems) == (1, 0, 20, ())
    return Seen(None, said(report), "when run again")


@fault("Indexing", "text that is larger than memory should be")
def _(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Seen:
    monkeypatch.setattr(loading, "PIECE", 50_000)
    peaks, index = [], BM25Index(tmp_path / "index")
    sentence = "A sentence of a long text stands here.\n"
    for name, times in (("warm-up", 1), ("small", 10_000), ("large", 40_000)):
        (tmp_path / f"{name}.txt").write_text(sentence * times)
        tracemalloc.start()
        report = index_paths([tmp_path / f"{name}.txt"], index)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.3 * peaks[1]
    return Seen(None, [f"{report.files} file read"], "yes")


# The folder of the index


@contextmanager
def disk(tmp_path: Path, size: str) -> Iterator[Path]:
    """A file system of its own in memory, of a given size."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, option: str) -> None:
    """Another option for the file system, as soon as nobody has a file of it open for writing."""
    for _ in range(100):  # Chroma closes its files a while after it was closed
        remounted = subprocess.run(["mount", "-o", f"remount,{option}", str(folder)], check=False)
        if remounted.returncode == 0:
            return
        gc.collect()
        time.sleep(0.2)
    remounted.check_returncode()


def opened(kind: str, folder: Path) -> Index:
    return ChromaIndex(folder, WordHash()) if kind == "Chroma" else BM25Index(folder)


def rows_in(folder: Path, number: int) -> Path:
    folder.mkdir(exist_ok=True)
    for part in range(4):
        rows = [{"text": f"passage {i} of {part} " + "word " * 50} for i in range(number // 4)]
        (folder / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@fault("Indexing", "disk full, BM25")
def _(tmp_path: Path) -> Seen:
    return _full("BM25", tmp_path)


@fault("Indexing", "disk full, Chroma")
def _(tmp_path: Path) -> Seen:
    return _full("Chroma", tmp_path)


def _full(kind: str, tmp_path: Path) -> Seen:
    docs = rows_in(tmp_path / "docs", 1600)
    with disk(tmp_path, "700k") as folder:

        def run() -> None:
            with opened(kind, folder / "index") as index:
                index_paths([docs], index, batch_size=50)

        error = raised_by(run)
        assert type(raised_by(run)) is type(error), "before space is freed it is the same"
        remount(folder, "size=50m")
        with opened(kind, folder / "index") as index:
            kept = len(index)
            report = index_paths([docs], index, batch_size=50)
            assert 0 < kept < 1600
            assert (report.added, report.passages) == (1600 - kept, 1600)
            assert index_paths([docs], index).unchanged == 4
    return Seen(error, goes_on="when run again")


@fault("Indexing", "index that may not be written to, BM25")
def _(tmp_path: Path) -> Seen:
    return _read_only("BM25", tmp_path)


@fault("Indexing", "index that may not be written to, Chroma")
def _(tmp_path: Path) -> Seen:
    return _read_only("Chroma", tmp_path)


def _read_only(kind: str, tmp_path: Path) -> Seen:
    docs = rows_in(tmp_path / "docs", 40)
    with disk(tmp_path, "50m") as folder:
        with opened(kind, folder) as index:
            index_paths([docs / "0.jsonl"], index)
        remount(folder, "ro")

        def run() -> None:
            with opened(kind, folder) as index:
                assert len(index.search("passage")) == 5, "it can be searched all the same"
                index_paths([docs], index)

        error = raised_by(run)
        remount(folder, "rw")
        with opened(kind, folder) as index:
            assert index_paths([docs], index).unchanged == 1
    return Seen(error, goes_on="when run again")


@fault("Indexing", "index made with other embeddings")
def _(tmp_path: Path) -> Seen:
    opened("Chroma", tmp_path).close()
    return Seen(raised_by(lambda: ChromaIndex(tmp_path, OtherWordHash())))


@fault("Indexing", "embeddings of the same name and other dimensions")
def _(tmp_path: Path) -> Seen:
    class WordHash3(WordHash):
        name = "tests.search.stand_ins:WordHash"

        def embed_query(self, text: str) -> list[float]:
            return super().embed_query(text)[:3]

    docs = rows_in(tmp_path / "docs", 8)
    with opened("Chroma", tmp_path / "index") as index:
        index_paths([docs / "0.jsonl"], index)
    with ChromaIndex(tmp_path / "index", WordHash3()) as index:
        error = raised_by(lambda: index_paths([docs], index))
    with opened("Chroma", tmp_path / "index") as index:
        assert len(index) == 2
    return Seen(error)


@fault("Indexing", "embeddings that raise")
def _(tmp_path: Path) -> Seen:
    docs, embeddings = rows_in(tmp_path / "docs", 40), WordHash()

    def refuse(texts: list[str]) -> Any:
        raise ConnectionError("no route\nto host")

    with ChromaIndex(tmp_path / "index", embeddings) as index:
        index_paths([docs / "0.jsonl"], index)
        embeddings.embed_documents = refuse  # type: ignore[method-assign]
        error = raised_by(lambda: index_paths([docs], index))
        del embeddings.embed_documents
        assert index_paths([docs], index).added == 30
    return Seen(error, goes_on="when run again")


@fault("Indexing", "vector store that raises")
def _(tmp_path: Path) -> Seen:
    docs, store = rows_in(tmp_path / "docs", 40), InMemoryVectorStore(WordHash())

    def refuse(*given: Any, **options: Any) -> Any:
        raise ConnectionError("no route\nto host")

    with StoreIndex(tmp_path / "list", store) as index:
        index_paths([docs / "0.jsonl"], index)
        store.add_documents = refuse  # type: ignore[method-assign]
        error = raised_by(lambda: index_paths([docs], index))
        del store.add_documents
        assert index_paths([docs], index).added == 30
    return Seen(error, goes_on="when run again")


@fault("Indexing", "embeddings that give too few vectors")
def _(tmp_path: Path) -> Seen:
    class Few(WordHash):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return super().embed_documents(texts[:-1])

    docs = rows_in(tmp_path / "docs", 40)
    with ChromaIndex(tmp_path / "index", Few()) as index:
        error = raised_by(lambda: index_paths([docs], index))
        assert len(index) == 0
    return Seen(error)


@fault("Indexing", "damaged index, BM25")
def _(tmp_path: Path) -> Seen:
    (tmp_path / "bm25.sqlite3").write_bytes(b"not a database" * 1000)
    return Seen(raised_by(lambda: opened("BM25", tmp_path)))


@fault("Indexing", "damaged index, Chroma")
def _(tmp_path: Path) -> Seen:
    (tmp_path / "chroma.sqlite3").write_bytes(b"not a database" * 1000)
    return Seen(raised_by(lambda: opened("Chroma", tmp_path)))


@fault("Indexing", "damaged scores of a BM25 index")
def _(tmp_path: Path) -> Seen:
    docs, index = rows_in(tmp_path / "docs", 8), BM25Index(tmp_path / "index")
    index_paths([docs], index)
    expected = index.search("passage")
    (folder,) = (tmp_path / "index").glob("scores-*")
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:20])
    found = BM25Index(tmp_path / "index").search("passage")
    assert found == expected
    return Seen(None, [f"{len(load_scores(folder).ids)} passages"], "yes")


# Processes

INDEXING = """
    import sys
    from selfcorrect_rag.search import index_paths
    from tests.faults.indexing import opened
    from pathlib import Path

    kind, folder, docs = sys.argv[1:]
    with opened(kind, Path(folder)) as index:
        print(0, flush=True)
        sys.stdin.readline()
        index_paths([docs], index, batch_size=16, on_progress=lambda p: print(p.added, flush=True))
"""


def start(kind: str, folder: Path, docs: Path) -> subprocess.Popen[str]:
    """A process that opens an index, says so, waits for a line, and indexes."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(INDEXING), kind, str(folder), str(docs)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )


@fault("Indexing", "kill -9, BM25")
def _(tmp_path: Path) -> Seen:
    return _killed("BM25", tmp_path)


@fault("Indexing", "kill -9, Chroma")
def _(tmp_path: Path) -> Seen:
    return _killed("Chroma", tmp_path)


def _killed(kind: str, tmp_path: Path) -> Seen:
    docs, folder = rows_in(tmp_path / "docs", 800), tmp_path / "index"
    with start(kind, folder, docs) as process:
        assert process.stdin
        assert process.stdout
        print(file=process.stdin, flush=True)
        for line in process.stdout:
            if int(line) >= 300:
                os.kill(process.pid, signal.SIGKILL)
                break
    with opened(kind, folder) as index, opened(kind, tmp_path / "whole") as whole:
        kept = len(index)
        report = index_paths([docs], index)
        index_paths([docs], whole)
        assert 300 <= kept < 800
        assert report.added == 800 - kept
        assert index.ids() == whole.ids()
        assert index_paths([docs], index).unchanged == 4
    return Seen(None, [f"ended by signal {-process.returncode}"], "when run again")


@fault("Indexing", "two processes in one index, BM25")
def _(tmp_path: Path) -> Seen:
    return _two("BM25", tmp_path)


@fault("Indexing", "two processes in one index, Chroma")
def _(tmp_path: Path) -> Seen:
    return _two("Chroma", tmp_path)


def _two(kind: str, tmp_path: Path) -> Seen:
    docs, folder = rows_in(tmp_path / "docs", 400), tmp_path / "index"
    both = [start(kind, folder, docs) for _ in range(2)]
    for process in both:
        assert process.stdin
        print(file=process.stdin, flush=True)
    ends = [process.communicate(timeout=120) for process in both]
    failed = [errors for (_, errors), process in zip(ends, both, strict=True) if process.returncode]
    with opened(kind, folder) as index:
        index_paths([docs], index)
        assert len(index) == len(index.ids()) == 400
    assert all("index.IndexBusy" in errors for errors in failed), failed
    assert len(failed) < 2
    with opened(kind, folder) as one, opened(kind, folder) as other:
        raised: list[BaseException] = []

        def interfere(progress: object) -> None:
            raised.append(raised_by(lambda: index_paths([docs], other)))

        index_paths([docs / "0.jsonl"], one, on_progress=interfere)
        assert index_paths([docs], other).unchanged == 4
    return Seen(raised[0], goes_on="when run again")
