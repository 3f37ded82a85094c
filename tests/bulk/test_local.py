"""Bulk runs in one process: killed, resumed, failed, refused, and on a full disk."""

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.bulk import Columns, GraphMaker, batch_questions
from selfcorrect_rag.bulk.answers import opened_answers
from selfcorrect_rag.bulk.graph_maker import NoGraph
from selfcorrect_rag.bulk.question_files import BadQuestions
from selfcorrect_rag.errors import BadRun, DiskFull
from selfcorrect_rag.evaluation.run import AllFailed
from selfcorrect_rag.old_journal import only_run
from selfcorrect_rag.search import NoIndex
from selfcorrect_rag.serving.config import BadOption, ServingConfig
from selfcorrect_rag.settings import CRAGSettings
from tests.bulk.runs import (
    FACTORY,
    ROOT,
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
from tests.faults.indexing import disk, remount


def test_a_killed_run_is_gone_on_from(tmp_path: Path) -> None:
    names = [f"q{n}" for n in range(60)]
    questions, out = write_questions(tmp_path, names, 0.1), tmp_path / "out"
    process = start(command(questions, out, "--in-flight", "3", "--batch-size", "7"))
    wait_for(lambda: len(finished_of(out)) >= 10)
    kill(process.pid)
    process.communicate()
    before, asked = finished_of(out), len(calls_of(tmp_path))
    assert 10 <= len(before) < 60
    summary = batch_questions(questions, FACTORY, out, columns=Columns(keep=("n",)))
    assert (summary.rows, summary.asked) == (60, 60 - len(before))
    assert names_of(out) == sorted(names)
    assert not before & {name for _, name in calls_of(tmp_path)[asked:]}
    assert len(calls_of(tmp_path)) <= 60 + 3
    assert not list((out / "unfinished").iterdir())


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_kill_between_a_part_and_its_journals_doubles_nothing(form: Any, tmp_path: Path) -> None:
    questions, out = write_questions(tmp_path, ["a", "b", "c"]), tmp_path / "out"
    batch_questions(questions, FACTORY, out, form=form)
    settings = json.loads((out / "settings.json").read_text())
    row = {**rows_of(out)[0]}
    line = {"key": row.pop("id"), **row, "kept": "{}"}
    journal = out / "unfinished" / "left.jsonl"
    journal.write_text(json.dumps(line) + '\n{"key": "half a li', encoding="utf-8")
    with opened_answers(out, form, settings) as answers:
        assert answers.summary().rows == 3
    assert names_of(out) == ["a", "b", "c"]
    assert not journal.exists()


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_failed_rows_are_asked_again_when_told(form: Any, tmp_path: Path) -> None:
    questions, out = write_questions(tmp_path, ["a", "fails1", "b"]), tmp_path / "out"
    summary = batch_questions(questions, FACTORY, out, form=form)
    assert (summary.rows, summary.failed) == (3, 1)
    failed = [row for row in rows_of(out) if row["error_type"]]
    assert [(row["error_type"], row["error"]) for row in failed] == [
        ("ValueError", "no answer to fails")
    ]
    Path(f"{tmp_path / 'calls'}.mended").touch()
    assert batch_questions(questions, FACTORY, out, form=form).asked == 0
    summary = batch_questions(questions, FACTORY, out, form=form, retry_failed=True)
    assert (summary.rows, summary.failed, summary.asked) == (3, 0, 1)
    assert names_of(out) == ["a", "b", "fails1"]
    assert [name for _, name in calls_of(tmp_path)].count("a") == 1


def test_new_questions_are_added_and_nothing_new_opens_no_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions, out = write_questions(tmp_path, ["a"]), tmp_path / "out"
    batch_questions(questions, FACTORY, out)
    with monkeypatch.context() as patched:
        patched.delattr("tests.bulk.scripted.make_graph")
        assert batch_questions(questions, FACTORY, out).asked == 0
    more = tmp_path / "more.jsonl"
    more.write_text(questions.read_text().replace("|a", "|b"), encoding="utf-8")
    assert batch_questions([questions, more], FACTORY, out).asked == 1
    assert names_of(out) == ["a", "b"]


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_parts_are_written_as_rows_are_finished(
    form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfcorrect_rag.bulk.answers.ROWS_PER_PART", 10)
    names = [f"q{n}" for n in range(399)]
    questions, out = write_questions(tmp_path, [*names, "fails1"]), tmp_path / "out"
    summary = batch_questions(questions, FACTORY, out, form=form, batch_size=4, in_flight=40)
    assert (summary.rows, summary.failed) == (400, 1)
    assert names_of(out) == sorted([*names, "fails1"])
    parts = sorted((out / "answers").iterdir())
    assert [path.name for path in parts] == [f"part-{n:05d}.{form}" for n in range(len(parts))]
    assert 30 <= len(parts) <= 40
    more = tmp_path / "more.jsonl"
    more.write_text(questions.read_text().replace("|q", "|r"), encoding="utf-8")
    again = batch_questions([questions, more], FACTORY, out, form=form, retry_failed=True)
    assert (again.rows, again.failed, again.asked) == (799, 1, 400)
    assert len(set(names_of(out))) == len(names_of(out)) == 799
    assert not list((out / "unfinished").iterdir())


def test_rows_of_one_content_are_one_row(tmp_path: Path) -> None:
    questions, out = write_questions(tmp_path, ["a", "b", "a"]), tmp_path / "out"
    other = tmp_path / "other.jsonl"
    other.write_text(questions.read_text(encoding="utf-8"), encoding="utf-8")
    summary = batch_questions([questions, other], FACTORY, out, batch_size=1, in_flight=1)
    assert (summary.rows, summary.asked) == (2, 2)
    assert [name for _, name in calls_of(tmp_path)] == ["a", "b"]
    assert names_of(out) == ["a", "b"]


def test_a_file_that_breaks_off_ends_the_run_and_what_is_finished_stays(tmp_path: Path) -> None:
    text = write_questions(tmp_path, ["a", "b"]).read_bytes()
    path, out = tmp_path / "q.jsonl.gz", tmp_path / "out"
    path.write_bytes(gzip.compress(text)[:-8])
    said = r"q\.jsonl\.gz cannot be read \(EOFError: .*\)"
    with pytest.raises(BadQuestions, match=said):
        batch_questions(path, FACTORY, out, batch_size=1, in_flight=1)
    path.write_bytes(gzip.compress(text))
    batch_questions(path, FACTORY, out)
    assert [name for _, name in calls_of(tmp_path)] == ["a", "b"]


def test_another_run_is_refused(tmp_path: Path) -> None:
    questions, out = write_questions(tmp_path, ["a"]), tmp_path / "out"
    batch_questions(questions, FACTORY, out)
    with pytest.raises(BadRun, match=r"other settings \(columns\)"):
        batch_questions(questions, FACTORY, out, columns=Columns(keep=("n",)))
    with pytest.raises(BadRun, match=r"other settings \(factory\)"):
        batch_questions(questions, "tests.bulk.scripted:RUNNABLE", out)
    with pytest.raises(BadRun, match=r"other settings \(format\)"):
        batch_questions(questions, FACTORY, out, form="parquet")


def test_two_runs_at_once_are_refused(tmp_path: Path) -> None:
    questions, out = write_questions(tmp_path, ["a"]), tmp_path / "out"
    batch_questions(questions, FACTORY, out)
    own = "import sys; from selfcorrect_rag.bulk import batch_questions as b; b(*sys.argv[1:])"
    with only_run(out):
        other = subprocess.run(
            [sys.executable, "-c", own, str(questions), FACTORY, str(out)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert "another run works in" in other.stderr


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    questions = write_questions(tmp_path, ["a"])
    with pytest.raises(BadRun, match="not of this command's making"):
        batch_questions(questions, FACTORY, tmp_path)
    with pytest.raises(BadRun, match="is a file"):
        batch_questions(questions, FACTORY, questions)
    with pytest.raises(BadRun, match="object stores cannot"):
        batch_questions(questions, FACTORY, "s3://bucket/out")


def test_questions_that_all_fail_end_the_run(tmp_path: Path) -> None:
    questions = write_questions(tmp_path, [f"fails{n}" for n in range(200)])
    said = "first 32 questions all failed: ValueError: no answer to fails; .* --retry-failed asks"
    with pytest.raises(AllFailed, match=said):
        batch_questions(questions, FACTORY, tmp_path / "out", in_flight=4)
    assert 32 <= len(rows_of(tmp_path / "out")) <= 36


def test_broken_rows_are_neither_failures_of_the_graph_nor_answers(tmp_path: Path) -> None:
    questions = write_questions(tmp_path, [*(f"fails{n}" for n in range(32)), "a"])
    rows = questions.read_text(encoding="utf-8").splitlines(keepends=True)
    broken = [f"broken {n}\n" for n in range(40)]
    questions.write_text("".join(broken + rows[:31] + rows[32:]), encoding="utf-8")
    summary = batch_questions(questions, FACTORY, tmp_path / "out", in_flight=1)
    assert (summary.rows, summary.failed) == (72, 71)
    questions.write_text("".join(broken + rows), encoding="utf-8")
    with pytest.raises(AllFailed, match="first 32 questions"):
        batch_questions(questions, FACTORY, tmp_path / "again", in_flight=1)


def test_one_answer_is_enough_to_go_on(tmp_path: Path) -> None:
    questions = write_questions(tmp_path, ["a", *(f"fails{n}" for n in range(50))])
    assert batch_questions(questions, FACTORY, tmp_path / "out", in_flight=1).failed == 50


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        ("tests.bulk.scripted:broken_factory", "no weights here"),
        ("tests.bulk.scripted:wrong_factory", "gives a int"),
        ("tests.bulk.scripted:NO_GRAPH", "gives a int"),
        ("tests.bulk.nowhere:f", "No module named"),
        ("nowhere.json", "neither MODULE:FUNCTION nor a JSON file"),
    ],
)
def test_no_graph_is_one_error(graph: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(NoGraph, match=said):
        batch_questions(write_questions(tmp_path, ["a"]), graph, tmp_path / "out")


def test_a_maker_is_saved_and_read(tmp_path: Path) -> None:
    config = ServingConfig(engine="server", base_url="http://me:secret@host:1", model="m")
    maker = GraphMaker.from_config("crag", CRAGSettings(passages=3), config)
    assert maker.settings == {"passages": 3}
    assert "secret" not in json.dumps(maker.as_json())
    assert "host" not in json.dumps(maker.as_json())
    saved = tmp_path / "graph.json"
    for risky in (
        {"engine": "server", "base_url": "http://host:1"},
        {"engine": "chat", "model": "os:getcwd"},
        {"store": "my_stores:pages"},
        {"engine": "vllm", "engine_option": ["trust_remote_code=true"]},
    ):
        foreign = {"graph": "crag", "config": risky}
        saved.write_text(json.dumps({"made": foreign}), encoding="utf-8")
        with pytest.raises(NoGraph, match=f"names {list(risky)[-1]} .* give a GraphMaker with"):
            GraphMaker.of(saved)
        assert GraphMaker("crag", config=risky).config == risky
    maker = GraphMaker.from_config("crag", CRAGSettings(passages=3), ServingConfig())
    saved.write_text(json.dumps({"made": maker._asdict()}), encoding="utf-8")
    assert GraphMaker.of(saved) == maker
    saved.write_text('{"graph": "crab"}', encoding="utf-8")
    with pytest.raises(NoGraph, match="no graph crab"):
        GraphMaker.of(saved)
    with pytest.raises(BadOption, match="approve_search waits for a person"):
        GraphMaker.from_config("crag", CRAGSettings(approve_search=True), ServingConfig())


def test_no_secret_is_written(tmp_path: Path) -> None:
    questions, out = write_questions(tmp_path, ["a"]), tmp_path / "out"
    config = {"engine": "server", "base_url": "http://me:hunter22@host", "index": "nowhere"}
    with pytest.raises(NoIndex):
        batch_questions(questions, GraphMaker("crag", config=config), out)
    written = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    assert b"crag" in b"".join(written)
    assert b"hunter22" not in b"".join(written)


def test_a_full_disk_is_one_error_and_what_is_written_stays(tmp_path: Path) -> None:
    names = [f"q{n}" for n in range(1000)]
    questions = write_questions(tmp_path, names)
    with disk(tmp_path, "300k") as folder:
        out = folder / "out"
        with pytest.raises(DiskFull, match="free space and run the same command again"):
            batch_questions(questions, FACTORY, out)
        before, asked = finished_of(out), len(calls_of(tmp_path))
        assert before
        remount(folder, "size=50m")
        assert batch_questions(questions, FACTORY, out).rows == 1000
        assert names_of(out) == sorted(names)
        assert not before & {name for _, name in calls_of(tmp_path)[asked:]}
