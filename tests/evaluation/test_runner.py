"""A run asks what is missing, keeps what it has, and can be resumed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.errors import BadArgument, BadRun
from selfcorrect_rag.evaluation.runner import (
    AllFailed,
    arun_methods,
    calibrate_refusals,
    run_methods,
)
from selfcorrect_rag.evaluation.tasks import Question, Run
from selfcorrect_rag.journal import Journal
from tests.evaluation.scripted_parts import Echo, ScriptedParts
from tests.training.toys import write

QUESTIONS = [Question(f"q{n}", f"question {n}", ("x",)) for n in range(20)]


def run(questions: list[Question], methods: Any, out: Path, **options: Any) -> Run:
    several = methods if isinstance(methods, list) else [methods]
    return run_methods(questions, several, out, **options)


@pytest.mark.parametrize("form", ["sync", "async"])
def test_all_methods_answer_all_questions(tmp_path: Path, form: str) -> None:
    left: list[int] = []
    methods: list[Any] = [Echo(), Echo("other")]
    options: dict[str, Any] = {"settings": {"model": "a"}, "on_done": lambda _, n: left.append(n)}
    if form == "sync":
        made = run_methods(QUESTIONS[:3], methods, tmp_path / "run", **options)
    else:
        made = asyncio.run(arun_methods(QUESTIONS[:3], methods, tmp_path / "run", **options))
    assert made.methods == ["m", "other"]
    assert [o.answer for o in made.of("m")] == [f"QUESTION {n}" for n in range(3)]
    assert left == [5, 4, 3, 2, 1, 0]
    assert run(QUESTIONS[:3], methods, tmp_path / "run", **options) == made
    assert len(left) == 6  # nothing was asked twice


def test_methods_and_questions_may_be_added_and_failures_are_asked_again(tmp_path: Path) -> None:
    questions, echo = [*QUESTIONS[:2], Question("f", "fail")], Echo()
    assert [bool(o.error) for o in run(questions, echo, tmp_path).outcomes] == [False, False, True]
    echo.asked.clear()
    run([*questions, QUESTIONS[2]], [echo, Echo("other")], tmp_path)
    assert echo.asked == ["f", "q2"]


def test_a_changed_question_is_asked_again_and_mended_answers_are_not(tmp_path: Path) -> None:
    echo = Echo()
    run(QUESTIONS[:2], echo, tmp_path)
    changed = [QUESTIONS[0]._replace(question="why?"), QUESTIONS[1]._replace(answers=("y",))]
    made = run(changed, echo, tmp_path)
    assert [o.answer for o in made.outcomes] == ["WHY?", "QUESTION 1"]
    assert echo.asked == ["q0", "q1", "q0"]
    echo.spec = echo.spec._replace(kind="crag")
    assert run(changed, echo, tmp_path) == made
    assert echo.asked[3:] == ["q0", "q1"], "by other settings"
    for document in (Document("a"), Document("b"), Document("b", metadata={"title": "t"})):
        run([QUESTIONS[2]._replace(passages=(document,))], echo, tmp_path)
    assert echo.asked[5:] == ["q2"] * 3, "by other passages"


def test_no_question_begins_beyond_a_bound(tmp_path: Path) -> None:
    echo, bound = Echo(), {"max_calls": 5, "concurrency": 2}
    assert run(QUESTIONS, echo, tmp_path, **bound).stopped == "max_calls"
    assert 5 <= len(echo.asked) <= 6  # one may be in flight beside the last
    assert echo.most == 2
    rest = run(QUESTIONS[:8], echo, tmp_path, **bound)
    assert (rest.stopped, len(rest.outcomes)) == ("", 8)


def test_a_dead_endpoint_ends_the_run_and_keeps_its_rows(tmp_path: Path) -> None:
    with pytest.raises(AllFailed, match="the first 8 questions of m all failed: dead"):
        run(QUESTIONS, Echo(error="dead"), tmp_path, concurrency=2)
    assert len(Journal(tmp_path / "rows.jsonl").rows) >= 8
    some = [Question("f", "fail"), *QUESTIONS]
    assert len(run(some, Echo(), tmp_path / "b").outcomes) == 21
    some = [*(Question(f"f{n}", "fail") for n in range(10)), *QUESTIONS]
    assert len(run(some, Echo(), tmp_path / "c", concurrency=12).outcomes) == 30, "12 at once"


def test_what_a_folder_refuses(tmp_path: Path) -> None:
    run(QUESTIONS[:1], Echo(), tmp_path / "run", settings={"model": "a"})
    with pytest.raises(BadRun, match="other settings"):
        run(QUESTIONS[:1], Echo(), tmp_path / "run", settings={"model": "b"})
    with pytest.raises(BadRun, match="same id"):
        run([QUESTIONS[0]] * 2, Echo(), tmp_path / "new")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "report.html").write_text("mine")
    with pytest.raises(BadRun, match="was not made by this command"):
        run(QUESTIONS[:1], Echo(), tmp_path / "mine")
    assert (tmp_path / "mine" / "report.html").read_text() == "mine"


def test_a_threshold_for_a_graph_from_labelled_questions(tmp_path: Path) -> None:
    """The model always names Lind, as sure of it if it is right as if it is wrong."""
    right = [{"question": f"Who, {n}?", "answers": ["Lind"]} for n in range(6)]
    rows = [*right, {"question": "Why?", "answers": ["because"]}, {"question": "What?"}]
    data = str(write(tmp_path / "questions.jsonl", *rows))

    def found(max_wrong: float, method: str = "crag", parts: Any = ScriptedParts) -> dict[str, Any]:
        return calibrate_refusals(data, tmp_path / "run", method, parts(), max_wrong)

    assert found(0.25)["score_above"] is None
    bound = found(0.2)
    counts = [bound[name] for name in ("answered", "wrong", "questions", "left_out")]
    assert counts == [0, 0, 7, 1]
    assert (bound["without"]["answered"], bound["without"]["wrong"]) == (7, 1)
    assert found(0.2, "crag:score_above=9")["without"]["answered"] == 7  # asked without it
    with pytest.raises(BadArgument, match="no answer of instruct_rag has a score to refuse by"):
        found(0.2, "instruct_rag")

    with pytest.raises(BadArgument, match="needs at least 19 labelled questions, got 8"):
        found(0.05, parts=lambda: None)
