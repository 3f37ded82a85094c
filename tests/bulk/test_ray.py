"""Bulk runs on a real Ray of this machine: equal to local ones, and killed."""

import gzip
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.bulk import Cluster, Columns, GraphActor, GraphMaker, batch_questions
from selfcorrect_rag.bulk.on_ray import WorkerFailed
from selfcorrect_rag.bulk.question_files import BadQuestions
from selfcorrect_rag.bulk.ray_cluster import ray_cluster
from selfcorrect_rag.errors import NoCluster
from selfcorrect_rag.evaluation.run import AllFailed
from tests.bulk.runs import (
    FACTORY,
    calls_of,
    command,
    finished_of,
    kill,
    names_of,
    rows_of,
    start,
    wait_for,
    write_questions,
)

QUESTIONS = (
    "Who discovered penicillin?",
    "Who wrote Middlemarch?",
    "When was the Eiffel Tower built?",
    "What is the capital of France?",
)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with ray_cluster(cpus=4, object_store_bytes=100 * 2**20) as module:
        yield module


def test_rows_are_those_of_a_local_run(ray: Any, tmp_path: Path) -> None:
    lines = [f'{{"question": "{question}", "n": {n}}}' for n, question in enumerate(QUESTIONS)]
    questions = tmp_path / "questions.jsonl"
    questions.write_text("\n".join([*lines, "broken", '{"n": 7}']), encoding="utf-8")
    tables = []
    for cluster in (None, Cluster(actors=1)):
        out = tmp_path / str(cluster is None)
        summary = batch_questions(
            questions, GraphMaker("self_crag"), out, form="parquet", in_flight=1, cluster=cluster
        )
        assert (summary.rows, summary.failed, summary.asked) == (6, 2, 6)
        tables.append({row.pop("id"): row for row in rows_of(out)})
    local, on_ray = tables
    assert all(row.pop("seconds") >= 0 for table in tables for row in table.values())
    assert local == on_ray
    for column in ("citations", "grades", "best_score", "action"):
        assert any(row[column] for row in local.values()), column


def test_a_killed_actor_is_replaced_and_what_it_finished_is_not_asked_again(
    ray: Any, tmp_path: Path
) -> None:
    names = [f"q{n}" for n in range(60)]
    questions, out = write_questions(tmp_path, names, 0.15), tmp_path / "out"
    finished: set[str] = set()
    killed: list[int] = []

    def kill_one() -> None:
        wait_for(lambda: len(finished_of(out)) >= 10)
        killed.append(calls_of(tmp_path)[0][0])
        kill(killed[0])
        finished.update(finished_of(out))

    killer = threading.Thread(target=kill_one)
    killer.start()
    cluster = Cluster(actors=1)
    summary = batch_questions(questions, FACTORY, out, cluster=cluster, in_flight=4, batch_size=30)
    killer.join()
    assert (summary.rows, summary.failed) == (60, 0)
    assert names_of(out) == sorted(names)
    calls = calls_of(tmp_path)
    assert len({pid for pid, _ in calls}) == 2, "another actor went on"
    asked_again = [name for pid, name in calls if pid != killed[0]]
    assert not finished & set(asked_again)
    assert len(calls) <= 60 + 4, "only what was in flight was asked twice"


def test_a_killed_driver_is_gone_on_from(ray: Any, tmp_path: Path) -> None:
    names = [f"q{n}" for n in range(80)]
    questions, out = write_questions(tmp_path, names, 0.1), tmp_path / "out"
    address = ray.get_runtime_context().gcs_address
    options = ("--on", "ray", "--address", address, "--in-flight", "2", "--batch-size", "10")
    process = start(command(questions, out, *options))
    wait_for(lambda: len(finished_of(out)) >= 15)
    kill(process.pid)
    process.communicate()
    before = finished_of(out)
    assert 15 <= len(before) < 80
    done = calls_of(tmp_path)
    columns = Columns(keep=("n",))
    cluster = Cluster(actors=1)
    summary = batch_questions(questions, FACTORY, out, columns=columns, cluster=cluster)
    assert (summary.rows, summary.failed) == (80, 0)
    assert names_of(out) == sorted(names)
    later = [name for _, name in calls_of(tmp_path)[len(done) :]]
    assert not before & set(later)
    assert len(calls_of(tmp_path)) <= 80 + 4


def test_files_of_equal_rows_and_one_that_breaks_off(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions, out = write_questions(tmp_path, ["a", "b", "a"]), tmp_path / "out"
    more = tmp_path / "more.jsonl"
    more.write_text(questions.read_text().replace("|b", "|c"), encoding="utf-8")
    context = ray.data.DataContext.get_current()
    before = (context.target_max_block_size, context.enable_progress_bars)
    during = []

    def show(finished: Any) -> None:
        during.append((context.target_max_block_size, context.enable_progress_bars))

    monkeypatch.chdir(tmp_path)  # where the workers are not
    files, cluster = [questions.name, str(more)], Cluster()
    summary = batch_questions(files, FACTORY, out, cluster=cluster, batch_size=2, on_finished=show)
    assert (summary.rows, summary.asked) == (3, 3)
    assert sorted(name for _, name in calls_of(tmp_path)) == ["a", "b", "c"]
    assert set(during) == {before}, "the process's own settings of Ray Data are left alone"
    zipped = tmp_path / "zipped.jsonl.gz"
    zipped.write_bytes(gzip.compress(more.read_bytes())[:-8])
    with pytest.raises(BadQuestions, match=r"zipped\.jsonl\.gz cannot be read \(EOFError: "):
        batch_questions(zipped, FACTORY, out, cluster=cluster)
    with pytest.raises(NoCluster, match="room for 0 actors of 1 GPUs each"):
        batch_questions(files, FACTORY, out, cluster=Cluster(gpus_per_actor=1))


def test_a_factory_that_fails_on_the_worker_is_one_error(ray: Any, tmp_path: Path) -> None:
    questions = write_questions(tmp_path, [f"q{n}" for n in range(50)])
    factory = "tests.bulk.scripted:broken_factory"
    with pytest.raises(WorkerFailed, match=r"broken_factory makes no graph .*no weights here"):
        batch_questions(questions, factory, tmp_path / "out", cluster=Cluster(), batch_size=5)
    assert rows_of(tmp_path / "out") == []


def test_questions_that_all_fail_end_the_run(ray: Any, tmp_path: Path) -> None:
    questions = write_questions(tmp_path, [f"fails{n}" for n in range(3000)])
    out = tmp_path / "out"
    with pytest.raises(AllFailed, match="ValueError: no answer to fails"):
        batch_questions(questions, FACTORY, out, cluster=Cluster(), batch_size=20)
    assert 32 <= len(rows_of(out)) < 3000


def test_the_actor_in_a_dataset_of_ones_own(ray: Any) -> None:
    rows = [{"question": text, "id": n} for n, text in enumerate(["a", "", "b"])]
    dataset = ray.data.from_items(rows).map_batches(
        GraphActor,
        fn_constructor_args=["tests.bulk.scripted:RUNNABLE"],
        compute=ray.data.ActorPoolStrategy(size=1),
    )
    found = sorted(dataset.take_all(), key=lambda row: row["id"])
    assert [row["answer"] for row in found] == ["A", None, "B"]
    assert [row["error_type"] for row in found] == [None, "BadRow", None]
