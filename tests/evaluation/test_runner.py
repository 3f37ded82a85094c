"""A run asks what is missing, keeps what it has, and can be resumed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.errors import BadRun
from selfcorrect_rag.evaluation.methods import Method, find_graph, read_spec
from selfcorrect_rag.evaluation.outcomes import Outcome
from selfcorrect_rag.evaluation.runner import (
    AllFailed,
    Limits,
    Run,
    arun_methods,
    count_left,
    read_run,
    run_methods,
)
from selfcorrect_rag.evaluation.tasks import Question

SPEC = "m=tests.evaluation.own_graphs:reads"
QUESTIONS = [Question(f"q{n}", f"question {n}", ("x",)) for n in range(20)]


def method(spec: str = SPEC) -> Method:
    read = read_spec(spec)
    return Method(read, find_graph(read.kind))


class Costly(Method):
    """Each answer costs a call and ten tokens; its limits can be counted."""

    def __init__(self, error: str = "") -> None:
        super().__init__(read_spec(SPEC), find_graph("tests.evaluation.own_graphs:reads"))
        self.error, self.asked = error, 0
        self.most = self.now = 0

    async def answer(self, question: Question) -> Outcome:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return Outcome(question.id, "m", "x", model_calls=1, prompt_tokens=10, error=self.error)


@pytest.mark.parametrize("form", ["sync", "async"])
def test_all_methods_answer_all_questions(tmp_path: Path, form: str) -> None:
    done: list[Outcome] = []
    methods = [method(), method("other=tests.evaluation.own_graphs:chat")]
    options: dict[str, Any] = {"settings": {"model": "a"}, "on_done": done.append}
    if form == "sync":
        run = run_methods(QUESTIONS[:3], methods, tmp_path / "run", **options)
    else:
        run = asyncio.run(arun_methods(QUESTIONS[:3], methods, tmp_path / "run", **options))
    assert run.methods == ["m", "other"]
    assert [o.answer for o in run.of("m")] == [f"QUESTION {n} of 0" for n in range(3)]
    assert sorted(o.id for o in done) == sorted(o.id for o in run.outcomes)
    again, settings = read_run(tmp_path / "run")
    assert again == run
    assert settings["model"] == "a"
    assert run_methods(QUESTIONS[:3], methods, tmp_path / "run", **options) == run
    assert len(done) == 6  # nothing was asked twice


def test_methods_and_questions_may_be_added_and_failures_are_asked_again(tmp_path: Path) -> None:
    questions = [*QUESTIONS[:2], Question("f", "fail")]
    run = run_methods(questions, [method()], tmp_path)
    assert [bool(o.error) for o in run.outcomes] == [False, False, True]
    specs = [read_spec(SPEC), read_spec("n=tests.evaluation.own_graphs:chat")]
    assert count_left(QUESTIONS[:4], specs, tmp_path) == 2 + 4
    assert count_left(questions, specs[:1], tmp_path) == 1
    done: list[Outcome] = []
    run_methods([*questions, QUESTIONS[2]], [method()], tmp_path, on_done=done.append)
    assert sorted(o.id for o in done) == ["f", "q2"]
    assert len(read_run(tmp_path)[0].questions) == 4


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(calls=5, concurrency=2), "max_calls"),
        (Limits(tokens=50, concurrency=2), "max_tokens"),
    ],
)
def test_no_question_begins_beyond_a_bound(tmp_path: Path, limits: Limits, reason: str) -> None:
    costly = Costly()
    run = run_methods(QUESTIONS, [costly], tmp_path, limits=limits)
    assert run.stopped == reason
    assert 5 <= costly.asked <= 6  # one may be in flight beside the last
    assert costly.most == 2
    rest = run_methods(QUESTIONS[:8], [costly], tmp_path, limits=limits)
    assert (rest.stopped, len(rest.outcomes)) == ("", 8)


def test_a_dead_endpoint_ends_the_run_and_keeps_its_rows(tmp_path: Path) -> None:
    with pytest.raises(AllFailed, match="the first 8 questions of m all failed: dead"):
        run_methods(QUESTIONS, [Costly("dead")], tmp_path, limits=Limits(concurrency=2))
    assert len(read_run(tmp_path)[0].outcomes) >= 8
    some = [Question("f", "fail"), *QUESTIONS]
    assert len(run_methods(some, [method()], tmp_path / "b").outcomes) == 21


def test_what_a_folder_refuses(tmp_path: Path) -> None:
    run_methods(QUESTIONS[:1], [method()], tmp_path / "run", settings={"model": "a"})
    with pytest.raises(BadRun, match="other settings"):
        run_methods(QUESTIONS[:1], [method()], tmp_path / "run", settings={"model": "b"})
    other = method("m=tests.evaluation.own_graphs:chat")
    with pytest.raises(BadRun, match="other settings"):
        run_methods(QUESTIONS[:1], [other], tmp_path / "run", settings={"model": "a"})
    changed = [QUESTIONS[0]._replace(question="why?")]
    with pytest.raises(BadRun, match="another question q0"):
        run_methods(changed, [method()], tmp_path / "run", settings={"model": "a"})
    with pytest.raises(BadRun, match="same id"):
        run_methods([QUESTIONS[0]] * 2, [method()], tmp_path / "new")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "questions.jsonl").write_text("mine")
    with pytest.raises(BadRun):
        run_methods(QUESTIONS[:1], [method()], tmp_path / "mine")
    assert (tmp_path / "mine" / "questions.jsonl").read_text() == "mine"
    with pytest.raises(BadRun, match="does not hold a run of eval"):
        read_run(tmp_path / "mine")


@pytest.mark.slow
def test_a_killed_run_is_resumed(tmp_path: Path) -> None:
    rows = tmp_path / "run" / "rows.jsonl"
    child = subprocess.Popen([sys.executable, "-m", __name__, str(tmp_path / "run")])
    deadline = time.monotonic() + 60
    while not (rows.exists() and rows.read_bytes().count(b"\n") > 3):
        assert time.monotonic() < deadline
        assert child.poll() is None
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    with rows.open("ab") as file:
        file.write(b'{"key": "m/q')  # as a kill within a write would leave it
    kept = len(rows.read_bytes().splitlines()) - 1
    done: list[Outcome] = []
    run = run_slowly(tmp_path / "run", done)
    assert [o.id for o in run.outcomes] == [q.id for q in QUESTIONS]
    assert len(done) == len(QUESTIONS) - kept > 0


def run_slowly(out: Path, done: list[Outcome]) -> Run:
    limits = Limits(concurrency=1)
    return run_methods(QUESTIONS, [method()], out, limits=limits, on_done=done.append)


if __name__ == "__main__":
    run_slowly(Path(sys.argv[1]), [])
