"""Many questions in this process: what is read, what is written, and what is asked again."""

import json
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.batch import Summary, batch_questions
from selfcorrect_rag.batch.run import COLUMNS, answered
from selfcorrect_rag.errors import BadRows, BadRun
from selfcorrect_rag.evaluation.runner import AllFailed
from selfcorrect_rag.serving.config import BadOption
from selfcorrect_rag.state import FREE
from tests.training.toys import lines, write

ECHO, SCRIPTED = "tests.batch.scripted:ECHO", "tests.batch.scripted:make_graph"


def scripted(folder: Path, *names: str) -> Path:
    """Questions to the scripted graph, which records its calls in ``folder / "calls"``."""
    rows = [{"question": f"{folder / 'calls'}||{name}"} for name in names]
    return write(folder / "questions.jsonl", *rows)


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []


def rows_of(out: Path) -> list[dict[str, Any]]:
    return lines(out / "answers.jsonl")


def test_answers_are_in_the_order_of_the_questions_and_equal_ones_are_one(tmp_path: Path) -> None:
    questions = [{"question": f"q{n}", "n": n, "other": "x"} for n in range(40)]
    file = write(tmp_path / "questions.jsonl", *questions, questions[3])
    summary = batch_questions(file, ECHO, tmp_path / "out", keep=("n",))
    rows = rows_of(tmp_path / "out")
    assert [(row["question"], row["answer"]) for row in rows] == [
        (f"q{n}", f"Q{n}") for n in range(40)
    ]
    assert [row["kept"] for row in rows] == [{"n": n} for n in range(40)]
    assert all(list(row) == list(COLUMNS) for row in rows)
    assert (summary.rows, summary.failed, summary.asked) == (40, 0, 40)
    saved = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert Summary(**saved) == summary
    file = write(tmp_path / "equal.jsonl", *({"question": "a", "n": n} for n in (1, 2, 2)))
    batch_questions(file, ECHO, tmp_path / "kept", keep=("n",))
    assert [row["kept"] for row in rows_of(tmp_path / "kept")] == [{"n": 1}, {"n": 2}]
    assert batch_questions(file, ECHO, tmp_path / "other").rows == 1


def test_formats_of_questions(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", {"question": "one\u2028\ud800"}, "")
    (tmp_path / "b.csv").write_text('\ufeffquestion,schema,json\n"two\nlines",s,j\n')
    files = [tmp_path / name for name in ("a.jsonl", "b.csv")]
    batch_questions(files, ECHO, tmp_path / "out", keep=("schema", "question", "json"))
    one, two = rows_of(tmp_path / "out")
    assert (one["question"], two["question"]) == ("one\u2028\ud800", "two\nlines")
    assert two["kept"] == {"schema": "s", "question": "two\nlines", "json": "j"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("broken", "q.jsonl:2: not JSON"),
        ('{"question": " ", "n": 1}', "q.jsonl:2: question must be a text"),
        ('{"n": 1}', "q.jsonl:2: question must be a text"),
        ('{"question": "b", "number": 1}', "no row has the column nmber"),
    ],
)
def test_a_row_that_is_not_a_question_ends_the_run_before_it_begins(
    tmp_path: Path, row: str, reason: str
) -> None:
    file = write(tmp_path / "q.jsonl", {"question": "a", "n": 1}, row)
    with pytest.raises(BadRows, match=reason):
        batch_questions(file, ECHO, tmp_path / "out", keep=("nmber",))
    assert not (tmp_path / "out").exists()


def test_a_stopped_run_asks_only_what_is_left(tmp_path: Path) -> None:
    names = [f"n{i}" for i in range(20)]
    questions, out = scripted(tmp_path, *names), tmp_path / "out"
    seen: list[Any] = []

    def stop(row: Any) -> None:
        seen.append(row)
        if len(seen) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        batch_questions(questions, SCRIPTED, out, in_flight=1, progress=stop)
    assert len(rows_of(out)) == 7
    (journal,) = (out / "journals").iterdir()
    with journal.open("a") as file:
        file.write('{"key": "torn')
    summary = batch_questions(questions, SCRIPTED, out)
    assert (summary.rows, summary.asked) == (20, 13)
    assert sorted(calls(tmp_path)) == sorted(names), "none twice"
    assert [row["question"].rpartition("|")[2] for row in rows_of(out)] == names
    summary = batch_questions(questions, SCRIPTED, out)
    assert (summary.rows, summary.asked) == (20, 0)


def test_failed_rows_are_asked_again(tmp_path: Path) -> None:
    questions, out = scripted(tmp_path, "a", "fails", "b"), tmp_path / "out"
    summary = batch_questions(questions, SCRIPTED, out)
    assert (summary.rows, summary.failed) == (3, 1)
    row = rows_of(out)[1]
    assert (row["error"], row["answer"]) == ("ValueError: no answer", None)
    assert list(row) == list(COLUMNS)
    (tmp_path / "calls.mended").touch()
    summary = batch_questions(questions, SCRIPTED, out)
    assert (summary.rows, summary.failed, summary.asked) == (3, 0, 1)
    answers = [row["answer"] for row in rows_of(out)]
    assert answers == ["answer to a", "answer to fails", "answer to b"]
    assert calls(tmp_path).count("a") == 1


def test_questions_that_all_fail_end_the_run(tmp_path: Path) -> None:
    questions = scripted(tmp_path, *(f"fails{i}" for i in range(200)))
    with pytest.raises(AllFailed, match="the first 32 questions all failed: ValueError: no answer"):
        batch_questions(questions, SCRIPTED, tmp_path / "out", in_flight=4)
    assert 32 <= len(rows_of(tmp_path / "out")) < 64
    with questions.open("a") as file:
        file.write(json.dumps({"question": f"{tmp_path / 'calls'}||last"}))
    summary = batch_questions(questions, SCRIPTED, tmp_path / "other", in_flight=256)
    assert (summary.rows, summary.failed) == (201, 200), "all are in flight before the first fails"


def test_a_folder_has_one_run(tmp_path: Path) -> None:
    questions, out = scripted(tmp_path, "a"), tmp_path / "out"
    batch_questions(questions, SCRIPTED, out)
    with pytest.raises(BadRun, match="other settings"):
        batch_questions(questions, ECHO, out)
    with pytest.raises(BadRun, match="was not made by this command"):
        batch_questions(questions, SCRIPTED, tmp_path)
    with pytest.raises(BadRun, match=r"other settings \(config\)"):
        batch_questions(questions, SCRIPTED, out, config={"passages": 3})
    elsewhere = {"base_url": "http://other:8000", "engine_options": {"dtype": "float16"}}
    assert batch_questions(questions, SCRIPTED, out, config=elsewhere).asked == 0


def test_graphs_that_cannot_be_made(tmp_path: Path) -> None:
    questions = scripted(tmp_path, "a")
    for name, reason in (("broken_factory", "no weights here"), ("NO_GRAPH", "got int|makes no")):
        with pytest.raises(BadRun, match=reason):
            batch_questions(questions, f"tests.batch.scripted:{name}", tmp_path / name)
    with pytest.raises(BadOption, match="there is no setting"):
        batch_questions(questions, "crag", tmp_path / "x", config={"upperr": 1})


def test_a_graph_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the index of the demo is made there
    file = write(tmp_path / "q.jsonl", {"question": "Who discovered penicillin?"})
    config = {"passages": 3, "web": "none"}
    summary = batch_questions(file, "crag", tmp_path / "out", config=config)
    (row,) = rows_of(tmp_path / "out")
    assert row["answer"]
    assert row["action"] in ("correct", "incorrect", "ambiguous")
    assert len(row["grades"]) == 3
    assert (summary.rows, summary.failed, summary.model_calls) == (1, 0, row["model_calls"])


def test_a_row_has_the_tokens_of_the_models_that_report_them_and_plain_values() -> None:
    """An evaluator without counts does not hide what the chat model has read."""
    silent = {**FREE, "model_calls": 2, "prompt_tokens": None, "generated_tokens": None}
    counted = {**FREE, "model_calls": 1, "prompt_tokens": 70, "generated_tokens": 9}
    result = {"answer": "a", "usage": {**silent, "model_calls": 3}, "route": [silent, counted]}
    row = answered(result, FREE)
    assert (row["model_calls"], row["prompt_tokens"], row["generated_tokens"]) == (3, 70, 9)
    assert answered({**result, "route": [silent]}, FREE)["prompt_tokens"] is None
    # Values that JSON lacks become text: a custom graph may cite a path.
    result = {"answer": "a", "citations": [{"number": 1, "source": Path("notes.md")}]}
    assert answered(result, FREE)["citations"][0]["source"] == "notes.md"
