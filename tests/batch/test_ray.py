"""Many questions on a real Ray of this machine: rows as without it, and kill -9."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from langchain_core.documents import Document

from selfcorrect_rag.batch import Cluster, batch_questions
from selfcorrect_rag.batch.run import open_ray
from selfcorrect_rag.errors import BadRun
from selfcorrect_rag.search import Index
from tests.batch.test_batch import SCRIPTED, rows_of, write

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
NAMES = ("Austen", "Eliot", "Woolf")
DRIVER = """
import sys
from selfcorrect_rag.batch import Cluster, batch_questions
questions, out, address = sys.argv[1:]
cluster = Cluster(address, actors=2, batch_size=10)
batch_questions(questions, "tests.batch.scripted:make_graph", out, cluster=cluster, in_flight=2)
"""


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    os.environ["PYTHONPATH"] = str(ROOT)  # of the workers too
    with open_ray(Cluster(actors=3)) as module:
        yield module


def questions_to(folder: Path, number: int) -> Path:
    """Questions, of which 20 are answered at once, whichever Ray asks first."""
    rows = [{"question": f"{folder / 'calls'}|20|n{i}"} for i in range(number)]
    return write(folder / "questions.jsonl", *rows)


def calls(folder: Path) -> list[tuple[int, str]]:
    path = folder / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(pid), name) for pid, name in (line.split() for line in lines)]


def journaled(out: Path) -> set[str]:
    found = set()
    for path in (out / "journals").glob("*.jsonl"):
        for line in path.read_text().split("\n")[:-1]:
            found.add(json.loads(line)["question"].rpartition("|")[2])
    return found


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_rows_equal_a_local_runs(ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # not the folder of the workers
    Index("own").add(Document(f"The {name} project is led by Ann {name}ova.") for name in NAMES)
    asked = [{"question": f"Who leads the {name} project?"} for name in NAMES]
    file = write(tmp_path / "q.jsonl", *asked)
    tables = []
    for cluster in (None, Cluster(actors=2, batch_size=2)):
        out = tmp_path / str(cluster is None)
        given: dict[str, Any] = {"config": {"index": "own"}, "in_flight": 1}
        summary = batch_questions(file, "crag", out, cluster=cluster, **given)
        assert (summary.rows, summary.failed, summary.asked) == (3, 0, 3)
        tables.append([{**row, "seconds": 0} for row in rows_of(out)])
    assert tables[0] == tables[1]
    assert tables[0][0]["citations"]


def test_a_killed_actor_is_replaced(ray: Any, tmp_path: Path) -> None:
    questions, out = questions_to(tmp_path, 60), tmp_path / "out"
    finished: set[str] = set()
    killed: list[int] = []

    def kill_one() -> None:
        wait_for(lambda: len(journaled(out)) >= 10)
        killed.append(calls(tmp_path)[0][0])
        os.kill(killed[0], signal.SIGKILL)
        finished.update(journaled(out))
        (tmp_path / "calls.released").touch()

    killer = threading.Thread(target=kill_one)
    killer.start()
    cluster = Cluster(actors=1, batch_size=30)
    summary = batch_questions(questions, SCRIPTED, out, cluster=cluster, in_flight=4)
    killer.join()
    assert (summary.rows, summary.failed) == (60, 0)
    again = {name for pid, name in calls(tmp_path) if pid != killed[0]}
    assert not finished & again, "what was finished is not asked again"
    assert len(calls(tmp_path)) <= 60 + 4, "only what was in flight was asked twice"


def test_a_killed_driver_is_resumed(ray: Any, tmp_path: Path) -> None:
    questions, out = questions_to(tmp_path, 80), tmp_path / "out"
    address = ray.get_runtime_context().gcs_address
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(questions), str(out), address],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )
    wait_for(lambda: len(journaled(out)) >= 15)
    driver.kill()
    driver.wait()
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid, _ in calls(tmp_path)))
    before, done = journaled(out), calls(tmp_path)
    assert 15 <= len(before) <= 20
    (tmp_path / "calls.released").touch()
    summary = batch_questions(questions, SCRIPTED, out)
    assert (summary.rows, summary.failed) == (80, 0)
    assert not before & {name for _, name in calls(tmp_path)[len(done) :]}
    assert len({row["id"] for row in rows_of(out)}) == len(rows_of(out)) == 80


def test_errors_of_a_cluster(ray: Any, tmp_path: Path) -> None:
    questions = questions_to(tmp_path, 5)
    factory = "tests.batch.scripted:broken_factory"
    with pytest.raises(BadRun, match=r"on a worker: .*no weights here"):
        batch_questions(questions, factory, tmp_path / "a", cluster=Cluster())
    with pytest.raises(BadRun, match="want 1 GPUs each"):
        batch_questions(questions, SCRIPTED, tmp_path / "b", cluster=Cluster(gpus_per_actor=1))


def test_no_cluster_answers(tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.shutdown()
    questions = questions_to(tmp_path, 1)
    with pytest.raises(BadRun, match=r"127.0.0.1:1 cannot be used"):
        batch_questions(questions, SCRIPTED, tmp_path / "o", cluster=Cluster("127.0.0.1:1"))
