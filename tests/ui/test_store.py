"""Past runs: search, marks, export for eval, bounds, several servers, kills."""

import json
import multiprocessing
import os
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.evaluation.tasks import read_task
from selfcorrect_rag.serving.config import BadOption
from selfcorrect_rag.ui import store as module
from selfcorrect_rag.ui.store import Run, RunStore


def run(id: str, question: str = "Who?", asked: float = 0.0, **rest: Any) -> Run:
    given = {"graph": "crag", "place": "i", "state": "done", "seconds": 1.0, "answer": "Ann"}
    return Run(id=id, asked=asked, question=question, **{**given, **rest})


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "deep" / "runs.sqlite")


def ids(found: list[Run]) -> list[str]:
    return [run.id for run in found]


def test_the_newest_come_first_and_are_found_by_their_words(store: RunStore) -> None:
    store.add(run("a", "Where is it 100% cold?", 1))
    store.add(run("b", "Who came?", 2, graph="self_rag", answer="the Cold Genius"))
    store.add(run("c", "Who went?", 3, result={"answer": "x"}))
    assert ids(store.find()) == ["c", "b", "a"]
    assert ids(store.find("cold")) == ["b", "a"]
    assert ids(store.find("cold genius")) == ["b"]
    assert ids(store.find("0% cold")) == ["a"]
    assert ids(store.find("%")) == ["a"]
    assert ids(store.find("_")) == []
    assert ids(store.find("' OR 1=1 --")) == []
    assert ids(store.find(graph="crag")) == ["c", "a"]
    assert store.get("c") == run("c", "Who went?", 3, result={"answer": "x"})
    assert store.get("nobody") is None


def test_marks_are_found_and_exported_for_eval(store: RunStore, tmp_path: Path) -> None:
    store.add(run("old", "Who?", 1, answer="Bea"))
    store.add(run("new", "Who?", 2, answer="Ann"))
    store.add(run("wrong", "Where?\n\u2028\u202e", 3, answer="Rome"))
    store.add(run("unknown", "When?", 4))
    store.add(run("unmarked", "Why?", 5))
    assert store.mark("old", "right", "", [])
    assert store.mark("new", "right", "sure", [])
    assert store.mark("wrong", "wrong", "", ["Paris", "Paris, France"])
    assert store.mark("unknown", "wrong", "nothing says", [])
    assert not store.mark("nobody", "right", "", [])
    assert ids(store.find(mark="wrong")) == ["unknown", "wrong"]
    assert ids(store.find(mark="none")) == ["unmarked"]
    assert ids(store.find("sure")) == ["new"]
    exported = tmp_path / "marked.jsonl"
    exported.write_text("".join(store.export()), encoding="utf-8")
    task = read_task(exported)
    assert task.skipped == ()
    assert [(q.question, q.answers) for q in task.questions] == [
        ("Who?", ("Ann",)),
        ("Where?\n\u2028\u202e", ("Paris", "Paris, France")),
    ]


def test_the_newest_run_that_says_what_is_right_is_exported(store: RunStore) -> None:
    store.add(run("right", "Who?", 1, answer="Ann"))
    store.add(run("other", "Where?", 2, answer="Rome"))
    store.add(run("wrong", "Who?", 3, answer="Bea"))
    for name, mark in (("right", "right"), ("other", "right"), ("wrong", "wrong")):
        assert store.mark(name, mark, "", [])  # type: ignore[arg-type]
    rows = [json.loads(line) for line in store.export()]
    assert [(row["id"], row["answers"]) for row in rows] == [
        ("right", ["Ann"]),  # another graph's wrong answer does not take it back
        ("other", ["Rome"]),
    ]
    store.mark("wrong", "wrong", "", ["Anna"])
    assert [json.loads(line)["id"] for line in store.export()] == ["other", "wrong"]


def test_unmarked_ones_are_bounded(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_RUNS", 3)
    store.add(run("marked", asked=0))
    store.mark("marked", "wrong", "", [])
    for number in range(6):
        store.add(run(str(number), asked=number + 1))
    assert ids(store.find()) == ["5", "4", "3", "marked"]
    assert store.count() == 4


def test_what_is_deleted_is_gone(store: RunStore) -> None:
    store.add(run("a"))
    assert store.delete("a")
    assert not store.delete("a")
    assert store.count() == 0


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one" * 9, None])
def test_what_is_no_file_of_runs_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "runs.sqlite"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(BadOption, match="--runs"):
        RunStore(path)


def test_another_program_s_table_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE runs (name TEXT)")
    with pytest.raises(BadOption, match="--runs"):
        RunStore(tmp_path / "other.sqlite")


def write_without_end(path: Path, name: str) -> None:
    store = RunStore(path)
    for number in range(100_000):
        store.add(run(f"{name}-{number}", asked=time.time(), result={"text": "x" * 20_000}))


def test_two_servers_and_a_kill_leave_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    RunStore(path)
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_without_end, args=(path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    store = RunStore(path)
    end = time.monotonic() + 120
    while not (store.find("", limit=1) and {i[0] for i in ids(store.find())} == {"a", "b"}):
        assert time.monotonic() < end
        time.sleep(0.05)
    for writer in writers:
        assert writer.pid
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    with sqlite3.connect(path) as file:
        assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    whole = [store.get(name) for name in ids(store.find(limit=-1))]
    assert all(found and found.result == {"text": "x" * 20_000} for found in whole)
    store.add(run("after"))
    assert store.get("after")
