"""`selfcorrect-rag batch`: its options, its output, and what it refuses."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from selfcorrect_rag.cli import main
from tests.bulk.runs import FACTORY, ROOT, names_of, rows_of, write_questions


def test_answers_of_the_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = tmp_path / "questions.csv"
    questions.write_text("q,number\nWho discovered penicillin?,7\n,8\n", encoding="utf-8")
    out = tmp_path / "answers"
    options = ["--question-column", "q", "--keep", "number", "--graph", "crag", "--upper", "0.7"]
    assert main(["batch", str(questions), "--out", str(out), *options]) == 1
    said = capsys.readouterr()
    assert "2 rows in" in said.out
    assert "1 failed: their error says why; --retry-failed asks them again" in said.out
    assert "the demo's documents are read" in said.err
    answered, broken = sorted(rows_of(out), key=lambda row: row["kept"]["number"])
    assert answered["answer"] == "Alexander Fleming"
    assert answered["action"] == "correct"
    assert answered["citations"][0]["title"] == "Alexander Fleming"
    assert answered["model_calls"] > 0
    assert broken["error"] == "questions.csv:2: the question is empty"
    assert json.loads((out / "settings.json").read_text())["settings"] == {"upper": 0.7}


def test_the_summary_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions, out = write_questions(tmp_path, ["a", "b"]), tmp_path / "out"
    assert main(["batch", str(questions), "--out", str(out), "--factory", FACTORY, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary == json.loads((out / "summary.json").read_text())
    assert (summary["rows"], summary["failed"], summary["asked"]) == (2, 0, 2)
    assert names_of(out) == ["a", "b"]


def test_what_ask_saved_answers_in_bulk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["ask", "Who wrote Emma?", "--graph", "crag", "--passages", "3", "--json"]) == 0
    Path("saved.json").write_text(capsys.readouterr().out, encoding="utf-8")
    Path("q.jsonl").write_text('{"question": "Who discovered penicillin?"}', encoding="utf-8")
    assert main(["batch", "q.jsonl", "--out", "out", "--again", "saved.json"]) == 0
    settings = json.loads(Path("out/settings.json").read_text())
    assert settings["graph"] == "crag"
    assert settings["settings"]["passages"] == 3


def test_progress_in_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selfcorrect_rag.commands.terminal.SECONDS_BETWEEN_LINES", 0)
    questions, out = write_questions(tmp_path, ["a", "fails1"]), tmp_path / "out"
    options = ["--factory", FACTORY, "--in-flight", "1"]
    assert main(["batch", str(questions), "--out", str(out), *options]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("1 rows, 0 failed, ")
    assert second.startswith("2 rows, 1 failed, ")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--question-column", "q"], "no row has the column q; there are: question, n"),
        (["--keep", "id"], "no row has the column id"),
        (["--actors", "2"], "--actors is for --on ray"),
        (["--address", "auto"], "--address is for --on ray"),
        (["--gpus-per-actor", "1"], "--gpus-per-actor is for --on ray"),
        (["--in-flight", "0"], "--in-flight 0: give 1 or more"),
        (["--on", "ray", "--actors", "0"], "--actors 0: give 1 or more"),
        (["--on", "ray", "--gpus-per-actor", "-1"], "--gpus-per-actor -1.0: give 0 or more"),
        (["--on", "spark"], "argument --on: invalid choice"),
        (["--graph", "self-rag", "--evaluator", "m"], "--evaluator is for --graph crag"),
        (["--graph", "crag", "--approve"], "waits for a person"),
        (["--factory", "m:f", "--graph", "crag"], "not with --graph"),
        (["--factory", "m:f", "--passages", "3"], "not with --passages"),
        (["--factory", "m:f", "--model", "m"], "not with --model"),
        (["--factory", "m:f", "--graph", "crag", "--approve"], "not with --approve"),
        (["--factory", "m:f", "--base-url", "http://x"], "not with --base-url"),
        (["--factory", "tests.bulk.scripted:broken_factory"], "no weights here"),
        (["--index", "nowhere"], "no folder nowhere"),
        (["--again", "nowhere.json"], "no result that ask --json saved"),
    ],
)
def test_what_is_refused(
    options: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, out = write_questions(tmp_path, ["a"]), tmp_path / "out"
    try:
        status = main(["batch", str(questions), "--out", str(out), *options])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) <= 2


def test_the_local_engine_needs_neither_ray_nor_pandas_nor_pyarrow(tmp_path: Path) -> None:
    questions, out = write_questions(tmp_path, ["a"]), tmp_path / "out"
    blocked = "import sys; sys.modules.update(dict.fromkeys(('ray', 'pandas', 'pyarrow')));"
    run = "from selfcorrect_rag.cli import main; sys.exit(main(sys.argv[1:]))"
    command = ["batch", str(questions), "--out", str(out), "--factory", FACTORY]
    for options, status in (([], 0), (["--on", "ray"], 2), (["--format", "parquet"], 2)):
        done = subprocess.run(
            [sys.executable, "-c", blocked + run, *command, *options],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        if "ray" in options:
            assert 'ray is not installed: pip install "selfcorrect-rag[ray]"' in done.stderr
    assert 'pip install "selfcorrect-rag[parquet]"' in done.stderr


def test_an_address_that_does_not_answer_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    questions = write_questions(tmp_path, ["q"])
    options = ["--out", str(tmp_path / "out"), "--factory", FACTORY, "--on", "ray"]
    assert main(["batch", str(questions), *options, "--address", f"127.0.0.1:{port}"]) == 2
    assert f"no Ray answers at 127.0.0.1:{port}" in capsys.readouterr().err
