"""`selfcorrect-rag train evaluator` from files to an evaluator that loads."""

import json
from pathlib import Path

import pytest

from selfcorrect_rag.cli import main
from selfcorrect_rag.models import T5Evaluator
from tests.training.test_evaluator import ROWS, toy


def test_from_files_to_an_evaluator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, words = toy()
    model.save_pretrained(tmp_path / "base")
    words.save_pretrained(tmp_path / "base")  # type: ignore[attr-defined]
    data = tmp_path / "graded.jsonl"
    rows = [
        {"question": row.question, "positives": row.positives, "negatives": row.negatives}
        for row in ROWS
    ]
    data.write_text("\n".join(map(json.dumps, rows)))
    command = ["train", "evaluator", "--data", str(data), "--out", str(tmp_path / "run")]
    options = ["--model", str(tmp_path / "base"), "--epochs", "2", "--longest", "48"]
    assert main([*command, *options, "--rate", "0.003", "--hard-negatives", "1"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed.splitlines()[0])["epochs"] == 2
    assert '"auc"' in printed
    evaluator = T5Evaluator.from_pretrained(tmp_path / "run" / "evaluator")
    assert len(evaluator.score("Who?", ["a", "b"])) == 2


def test_bad_rows_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "graded.jsonl"
    data.write_text("{}")
    assert main(["train", "evaluator", "--data", str(data), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"selfcorrect-rag: {data}:1: not")


def test_numbers_that_count_something_are_1_at_least(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "evaluator", "--data", str(tmp_path / "none"), "--out", str(tmp_path)]
    for option in ("--batch", "--longest"):
        with pytest.raises(SystemExit):
            main([*command, option, "0"])
        assert f"{option}: 0 is less than 1" in capsys.readouterr().err
    assert main([*command, "--hard-negatives", "0", "--lora", "0", "--seed", "0"]) == 2
    assert "cannot read" in capsys.readouterr().err
