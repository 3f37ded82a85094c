"""What the page on many questions shows works as written."""

import json
import re
import shlex
from pathlib import Path

import pytest

from selfcorrect_rag.bulk.rows import COLUMNS, arrow_schema
from selfcorrect_rag.cli import main
from tests.bulk.runs import rows_of
from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "bulk.md").read_text(encoding="utf-8")
SHELL = re.findall(r"^selfcorrect-rag (batch .*)$", PAGE, re.MULTILINE)
QUESTIONS = ("Who discovered penicillin?", "Who wrote Middlemarch?")


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": text, "number": n} for n, text in enumerate(QUESTIONS)]
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    lines = [f"{text},{n}" for n, text in enumerate(QUESTIONS)]
    Path("questions.csv").write_text("\n".join(["q,number", *lines]), encoding="utf-8")
    here = [command for command in SHELL if "--on ray" not in command]
    assert len(here) == 5
    for command in here:
        assert main(shlex.split(command)) == 0
    assert len(rows_of(Path("answers"))) == len(rows_of(Path("tables"))) == 2
    assert {row["question"]: row["kept"]["number"] for row in rows_of(Path("kept"))} == {
        text: str(n) for n, text in enumerate(QUESTIONS)
    }
    assert {row["action"] for row in rows_of(Path("chosen"))} <= {"correct", "ambiguous"}
    capsys.readouterr()
    names: dict[str, object] = {}
    expected = []
    for block in BLOCK.findall(PAGE):
        exec(compile(block, "bulk.md", "exec"), names)
        expected += re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
    assert len(expected) == 2
    assert capsys.readouterr().out.splitlines() == expected


def test_every_column_is_shown_with_its_type() -> None:
    shown = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert [(name, kind, what) for name, kind, what in shown] == [
        (name, kind, what) for name, (kind, what) in COLUMNS.items()
    ]
    assert arrow_schema().names == list(COLUMNS)
