"""Runs over scripted parts: rows, kills, failures, bounds, and folders of other runs."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.errors import BadRun
from selfcorrect_rag.evaluation.methods import Method
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.run import (
    AllFailed,
    Finished,
    Limits,
    estimate_run,
    read_run,
    run_methods,
)
from selfcorrect_rag.old_journal import only_run
from tests.evaluation.scripted_parts import PAGES, ScriptedParts, opened
from tests.evaluation.slow_run import QUESTIONS, slow_run

SIX = [Question(f"q{n}", f"Who was it, {n}?", ("Lind",)) for n in range(6)]


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "rows.jsonl").read_bytes().splitlines()]


def run(out: Path, *specs: str, questions: list[Question] = SIX, **options: Any) -> Finished:
    parts = ScriptedParts()
    return run_methods(questions, [opened(spec, parts) for spec in specs], out, **options)


def test_every_method_answers_every_question_in_a_row(tmp_path: Path) -> None:
    done: list[Outcome] = []
    finished = run(tmp_path, "rag_first", "rag", on_done=done.append)
    assert (finished.asked, finished.stopped, finished.methods) == (12, "", ["rag_first", "rag"])
    assert [o.answer for o in finished.of("rag")] == ["Lind"] * 6
    assert [o.answer for o in finished.of("rag_first")] == ["Berg"] * 6
    assert len(done) == len(rows(tmp_path)) == 12
    assert {(row["method"], row["id"]) for row in rows(tmp_path)} == {
        (method, question.id) for method in ("rag_first", "rag") for question in SIX
    }
    read, settings = read_run(tmp_path)
    assert read.questions == SIX
    assert read.outcomes == finished.outcomes
    assert settings["method rag_first"]["settings"]["passages"] == 1


def test_a_killed_run_goes_on_from_its_rows(tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [sys.executable, "-m", "tests.evaluation.slow_run", str(out)]
    process = subprocess.Popen(command)
    try:
        kept = 0
        for _ in range(3_000):
            journal = out / "rows.jsonl"
            kept = journal.read_bytes().count(b"\n") if journal.exists() else 0
            if kept >= 3 or process.poll() is not None:
                break
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
    kept = len(rows(out))
    assert 3 <= kept < len(QUESTIONS)
    with (out / "rows.jsonl").open("ab") as file:
        file.write(b'{"key": "slow/q19", "id": "q1')  # what a kill may leave
    finished = slow_run(out)
    assert finished.asked == len(QUESTIONS) - kept
    assert [o.answer for o in finished.outcomes] == [f"QUESTION {n}" for n in range(20)]
    assert len(rows(out)) == len(QUESTIONS)
    assert slow_run(out).asked == 0


def test_a_failed_question_is_a_row_and_is_asked_again(tmp_path: Path) -> None:
    questions = [QUESTIONS[0], Question("bad", "fail"), QUESTIONS[1]]
    finished = run(tmp_path, "slow=tests.evaluation.own_graphs:slow", questions=questions)
    assert [o.error for o in finished.outcomes] == ["", "RuntimeError: it is broken", ""]
    assert finished.outcomes[1].answer == ""
    again = run(tmp_path, "slow=tests.evaluation.own_graphs:slow", questions=questions)
    assert (again.asked, len(again.outcomes), len(rows(tmp_path))) == (1, 3, 4)


def test_a_method_whose_first_questions_all_fail_alike_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, many = "dead=tests.evaluation.own_graphs:dead", QUESTIONS
    few = run(tmp_path / "few", "rag", dead, questions=many[:7])
    assert [o.error for o in few.of("dead")] == ["ConnectionError: connection refused"] * 7
    with pytest.raises(AllFailed, match=r"first 8 questions of dead all failed: Connection"):
        run(tmp_path, "rag", dead, questions=many, limits=Limits(concurrency=2))
    assert len([row for row in rows(tmp_path) if row["error"]]) == 8
    assert any(row["method"] == "rag" for row in rows(tmp_path))
    with pytest.raises(AllFailed, match="first 12 questions of dead"):
        run(tmp_path / "wide", dead, questions=many, limits=Limits(concurrency=12))
    monkeypatch.setattr("tests.evaluation.own_graphs.REFUSED", Counting())
    unlike = run(tmp_path / "unlike", dead, questions=many, limits=Limits(concurrency=2))
    assert len({o.error for o in unlike.outcomes}) == len(many)


class Counting:
    """A text that is another one each time."""

    said = 0

    def __str__(self) -> str:
        self.said += 1
        return str(self.said)


def test_a_bound_ends_a_run_between_questions_and_the_next_goes_on(tmp_path: Path) -> None:
    stopped = run(tmp_path, "rag", "rag_first", limits=Limits(calls=5))
    assert (stopped.asked, stopped.stopped) == (5, "max_calls")
    assert {o.id for o in stopped.of("rag_first")} <= {o.id for o in stopped.of("rag")}
    assert sum(o.model_calls for o in stopped.outcomes) == 5
    assert run(tmp_path, "rag", "rag_first", limits=Limits(calls=7)).asked == 7


def test_tokens_are_bounded_too_and_an_estimate_alone_ends_no_run(tmp_path: Path) -> None:
    by_tokens = run(tmp_path / "tokens", "rag", limits=Limits(tokens=1))
    assert (by_tokens.asked, by_tokens.stopped) == (1, "max_tokens")
    wide = run(tmp_path / "wide", "rag", limits=Limits(calls=6))
    assert (wide.asked, wide.stopped) == (6, "")


def test_an_estimate_counts_what_is_left_by_what_rows_cost(tmp_path: Path) -> None:
    methods = [opened("rag"), opened("crag")]
    specs = [method.spec for method in methods]
    guessed = estimate_run(SIX, specs, tmp_path)
    assert (guessed["rag"].calls, guessed["crag"].calls) == (6, 18)
    given = [question._replace(passages=tuple(PAGES)) for question in SIX]
    assert 0 < estimate_run(given, specs, tmp_path)["rag"].tokens < guessed["rag"].tokens
    run(tmp_path, "rag", questions=SIX[:2])
    (each,) = {row["prompt_tokens"] + row["generated_tokens"] for row in rows(tmp_path)}
    assert estimate_run(SIX, specs, tmp_path)["rag"] == (4, 4 * each)
    run(tmp_path, "rag")
    assert estimate_run(SIX, specs, tmp_path)["rag"] == (0, 0)


def test_questions_are_in_flight_side_by_side_and_no_more_than_wanted(tmp_path: Path) -> None:
    def seconds(name: str, concurrency: int) -> float:
        started = time.perf_counter()
        slow_run(tmp_path / name, Limits(concurrency=concurrency))
        return time.perf_counter() - started

    assert seconds("one", 1) > 20 * 0.05
    assert seconds("many", 20) < seconds("two", 2)


def test_methods_and_questions_may_be_added_but_not_changed(tmp_path: Path) -> None:
    run(tmp_path, "rag", questions=SIX[:3], settings={"model": "one"})
    grown = run(tmp_path, "rag", "two=rag:passages=2", settings={"model": "one"})
    assert grown.asked == 9
    with pytest.raises(BadRun, match=r"other settings \(model\)"):
        run(tmp_path, "rag", settings={"model": "other"})
    with pytest.raises(BadRun, match=r"other settings \(method two\)"):
        run(tmp_path, "two=rag:passages=1", settings={"model": "one"})
    changed = [SIX[0]._replace(answers=("Berg",))]
    with pytest.raises(BadRun, match="question q0 is another"):
        run(tmp_path, "rag", questions=changed, settings={"model": "one"})
    given = [SIX[0]._replace(passages=tuple(PAGES))]
    with pytest.raises(BadRun, match="question q0 is another"):
        run(tmp_path, "rag", questions=given, settings={"model": "one"})
    with pytest.raises(BadRun, match="two questions have the id q0"):
        run(tmp_path, "rag", questions=[SIX[0], SIX[0]])


def test_a_folder_is_of_one_process_and_of_a_run(tmp_path: Path) -> None:
    with only_run(tmp_path), pytest.raises(BadRun, match="another run works in"):
        run(tmp_path, "rag")
    with pytest.raises(BadRun, match="holds no run"):
        read_run(tmp_path)


def test_a_row_that_cannot_be_written_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Any, key: str, row: Any) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("selfcorrect_rag.journal.Journal.append", full)
    with pytest.raises(OSError, match="the disk is gone"):
        run(tmp_path, "rag")


def test_a_method_is_asked_as_it_is_made(tmp_path: Path) -> None:
    parts = ScriptedParts()
    methods: list[Method] = [opened("rag", parts), opened("no_retrieval", parts)]
    run_methods(SIX, methods, tmp_path)
    assert sorted(parts.queries) == [question.question for question in SIX]
