"""No text of others reaches a terminal as more than letters, whatever command prints it."""

import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.cli import main
from selfcorrect_rag.commands.terminal import as_json, shown_line
from selfcorrect_rag.search import BM25Index

EVIL = "\x1b[2J\x1b]0;mine\x07 \x9b31m \x85 \u202eevil\u2066 \u2028 \ufeff \x7f \U000e0041"


def assert_inert(printed: str) -> None:
    for letter in printed:
        category = unicodedata.category(letter)
        assert letter in "\n\u200c\u200d" or category[0] != "C", repr(printed)
        assert category not in ("Zl", "Zp"), repr(printed)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    with BM25Index(tmp_path / "index") as index:
        index.add(
            Document(
                f"Guernica {EVIL} was painted by Pablo Picasso. {EVIL}",
                metadata={"title": f"Guernica {EVIL}", "source": f"/{EVIL}", f"k{EVIL}": EVIL},
            )
            for _ in range(2)
        )
    return tmp_path / "index"


@pytest.mark.parametrize("graph", ["self-rag", "crag", "self-crag", "instruct-rag"])
@pytest.mark.parametrize("form", [["--json"], ["--explain-cost"]])
def test_ask(index: Path, graph: str, form: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    question = f"Who painted Guernica? {EVIL}"
    assert main(["ask", question, "--index", str(index), "--graph", graph, *form]) == 0
    out, err = capfd.readouterr()
    assert "Guernica" in out
    assert_inert(out + err.replace("\r", ""))  # bars of loading models
    if form == ["--json"]:
        assert "\u202eevil" in json.loads(out)["question"], "JSON loses nothing"


def test_letters_that_the_output_cannot_encode(index: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "selfcorrect_rag.cli",
        "ask",
        "écrit 日本",
        "--json",
        "--index",
    ]
    for folder, status in ((index, 0), (index / "日本", 2)):
        done = subprocess.run(
            [*command, folder],
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == status, done.stderr
        if status:
            assert "\\u65e5\\u672c" in done.stderr
        else:
            assert json.loads(done.stdout)["question"] == "écrit 日本"


def test_index(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = EVIL.replace("/", "")
    (tmp_path / f"{name}.txt").write_text("passage")
    (tmp_path / f"{name}.json").write_text("{")
    for form in ([], ["--json"], [f"--{name}"]):
        arguments = [
            "index",
            str(tmp_path),
            "--index",
            f"{tmp_path}/{name}",
            "--embeddings",
            "bm25",
        ]
        if form and form != ["--json"]:
            with pytest.raises(SystemExit):
                main([*arguments, *form])
        else:
            assert main([*arguments, *form]) == 0
        out, err = capfd.readouterr()
        assert "mine" in out + err
        assert_inert(out + err)


def test_errors_of_any_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.jsonl").write_text("{")
    missing = f"{tmp_path}/{EVIL}\n"
    files = ["--data", str(tmp_path / "rows.jsonl"), "--out", missing]
    for arguments in (
        ["ask", "Who?", "--index", missing],
        ["index", str(tmp_path), "--index", missing, "--embeddings", f"{EVIL}:x"],
        ["train", "evaluator", "--data", missing, "--out", str(tmp_path / "out")],
        ["train", "evaluator", *files],
        ["train", "critic", *files],
        ["train", "generator", *files, "--model", EVIL],
        ["train", "rationales", *files, "--template"],
        ["calibrate", "--data", missing],
    ):
        assert main(arguments) == 2, arguments
        out, err = capfd.readouterr()
        assert len(err.splitlines()) == 1
        assert_inert(out + err)


def test_what_can_be_read_stays_as_it_is() -> None:
    text = "Zürich 東京\u3000京都 \U0001f469\u200d\U0001f680 می\u200cخواهم é"
    assert shown_line(text) == text
    assert as_json([text]) == json.dumps([text], ensure_ascii=False)
    assert json.loads(as_json([EVIL, "\ud83d"])) == [EVIL, "\ud83d"]
    assert shown_line("a\x1b\u202e\n") == "a\\x1b\\u202e\\n"
