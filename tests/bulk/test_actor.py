"""The actors without Ray, and addresses where none answers."""

import json
import socket
import threading
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from selfcorrect_rag.bulk import Columns, GraphActor, GraphMaker
from selfcorrect_rag.bulk.finished import Finished
from selfcorrect_rag.bulk.graph_actor import JournalingActor
from selfcorrect_rag.bulk.question_files import QuestionFile
from selfcorrect_rag.bulk.questions import Line, read_questions
from selfcorrect_rag.bulk.ray_cluster import ray_cluster, refuse_without_gpus
from selfcorrect_rag.bulk.rows import ANSWER, arrow_schema
from selfcorrect_rag.errors import NoCluster
from tests.bulk.runs import FACTORY, calls_of, write_questions
from tests.bulk.scripted import CROWD
from tests.faults.indexing import disk

RUNNABLE = "tests.bulk.scripted:RUNNABLE"


@pytest.mark.parametrize("as_table", [True, False])
async def test_a_batch_gets_the_columns_of_answers(as_table: bool) -> None:
    columns = {"question": ["a", None, "b"], "id": [1, 2, 3], "error": ["x", "y", "z"]}
    batch: Any = pa.table(columns) if as_table else columns
    table = await GraphActor(RUNNABLE)(batch)
    assert table.select(ANSWER).schema == arrow_schema(ANSWER)
    assert table.column("id").to_pylist() == [1, 2, 3]
    assert table.column("answer").to_pylist() == ["A", None, "B"]
    assert table.column("error_type").to_pylist() == [None, "BadRow", None]


async def test_no_more_are_asked_at_a_time_than_are_wanted() -> None:
    CROWD.most = 0
    table = await GraphActor("tests.bulk.scripted:crowded", in_flight=2)(
        {"question": list("abcdef")}
    )
    assert table.column("answer").to_pylist() == list("abcdef")
    assert CROWD.most == 2


def batch_of(path: Path) -> dict[str, list[str]]:
    lines = list(read_questions([QuestionFile(str(path))], Columns(), "run", lambda _: True))
    return {name: [getattr(line, name) for line in lines] for name in Line._fields}


async def test_a_batch_goes_on_from_its_journal(tmp_path: Path) -> None:
    (tmp_path / "out" / "unfinished").mkdir(parents=True)
    (tmp_path / "out" / "unfinished" / "x.run").touch()
    batch = batch_of(write_questions(tmp_path, ["a", "b", "fails1"]))
    maker, out = GraphMaker.of(FACTORY), str(tmp_path / "out")
    told = await JournalingActor(maker, out, "x.run", 2)(batch)
    (journal,) = map(Path, told["journal"])
    first, *_ = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    journal.write_text(first + '{"key": "half', encoding="utf-8")
    again = await JournalingActor(maker, out, "x.run", 2)(batch)
    assert again["journal"] == told["journal"]
    assert again["fatal"] == [""]
    finished = Finished(*json.loads(again["finished"][0]))
    assert (finished.rows, finished.failed) == (3, 1)
    assert sorted(finished.errors) == ["", "", "ValueError: no answer to fails"]
    assert len(calls_of(tmp_path)) == 3 + 2


async def test_a_worker_that_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    batch = batch_of(write_questions(tmp_path, ["a"]))
    actor = JournalingActor(GraphMaker.of(FACTORY), str(tmp_path / "elsewhere"), "x.run", 1)
    assert "give a folder that all machines share" in (await actor(batch))["fatal"][0]
    assert not calls_of(tmp_path)


async def test_a_full_disk_is_said_by_the_worker(tmp_path: Path) -> None:
    batch = batch_of(write_questions(tmp_path, [f"q{n}" for n in range(200)]))
    with disk(tmp_path, "16k") as folder:
        (folder / "unfinished").mkdir()
        (folder / "unfinished" / "x.run").touch()
        told = await JournalingActor(GraphMaker.of(FACTORY), str(folder), "x.run", 4)(batch)
    assert told["fatal"][0].startswith(f"DiskFull: the disk of {folder} is full (")


@pytest.mark.parametrize(
    ("gpus", "actors", "there", "fit"),
    [
        (0.0, 9, (), True),
        (1.0, 1, (), False),
        (1.0, 3, (2.0, 1.0), True),
        (1.0, 4, (2.0, 1.0), False),
        (2.0, 2, (3.0, 1.0), False),
        (0.5, 4, (1.0, 1.0), True),
        (0.1, 10, (1.0,), True),
        (0.1, 11, (1.0,), False),
    ],
)
def test_actors_without_room_on_gpus_are_refused(
    gpus: float, actors: int, there: tuple[float, ...], fit: bool
) -> None:
    nodes = [{"Alive": True, "Resources": {"CPU": 4.0, "GPU": number}} for number in there]
    gone = {"Alive": False, "Resources": {"GPU": 8.0}}
    ray = SimpleNamespace(nodes=lambda: [*nodes, gone, {"Alive": True, "Resources": {}}])
    with nullcontext() if fit else pytest.raises(NoCluster, match=f"{actors} are wanted"):
        refuse_without_gpus(ray, gpus, actors)


class Silent(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.mark.parametrize("address", ["ray://host:10001", "host", "host:port", "http://host:1"])
def test_what_is_no_address(address: str) -> None:
    with (
        pytest.raises(NoCluster, match="is no address of Ray: give HOST:PORT"),
        ray_cluster(address),
    ):
        pass


def test_what_answers_and_is_not_ray() -> None:
    with HTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_port}"
        said = f"what answers at {address} is not Ray"
        with pytest.raises(NoCluster, match=said), ray_cluster(address):
            pass
        server.shutdown()


def test_what_accepts_and_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfcorrect_rag.bulk.ray_cluster.CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(NoCluster, match=f"no Ray answers at {address}"), ray_cluster(address):
            pass
