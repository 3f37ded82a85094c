"""`selfcorrect-rag train critic-data`: its cost and its errors."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.cli import main
from selfcorrect_rag.training.critic_data import read_critic_rows
from tests.commands.mistakes import assert_said_in_one_line
from tests.training.critic_runs import data
from tests.training.teacher import Teacher

ROOT = Path(__file__).parents[2]


def command(tmp_path: Path, *options: str, model: str = "quick") -> list[str]:
    files = ["--data", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "out.jsonl")]
    named = ["--model", f"tests.training.teacher:{model}"]
    return ["train", "critic-data", *files, *named, *options]


def test_the_command_shows_the_cost_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data(tmp_path / "rows.jsonl", 5)
    assert main(command(tmp_path, "--estimate")) == 0
    settings, cost = capsys.readouterr().out.splitlines()
    assert json.loads(settings)["max_tokens"] == 200
    assert cost.startswith("16 calls: about ")
    assert "at most 3,200 out" in cost
    assert not (tmp_path / "out.jsonl").exists()
    assert main(command(tmp_path)) == 0
    _, again, *report, where = capsys.readouterr().out.splitlines()
    assert again == cost
    assert json.loads("\n".join(report))["outcomes"]["ISREL"]["labelled"] > 0
    assert where == f"the labels are in {tmp_path}/out.jsonl, what failed in " + str(
        tmp_path / "out.jsonl.run/failures.jsonl"
    )
    assert main(command(tmp_path, "--estimate")) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("0 calls")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "tests.training.teacher:missing"], "no importable module:attribute"),
        (["--model", "nowhere:quick"], "no importable module:attribute"),
        (["--model", "gpt"], "no importable module:attribute"),
        (["--model", "tests.training.teacher:LABELS"], "is dict, not a LangChain model"),
        (["--data", "missing.jsonl"], "cannot read"),
        (["--out", "."], "is a folder"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    message: str,
) -> None:
    for name in ("langchain", "langchain.chat_models"):
        monkeypatch.setitem(sys.modules, name, None)
    data(tmp_path / "rows.jsonl", 1)
    assert main(command(tmp_path, *options)) == 2
    assert_said_in_one_line(capsys, message)


@pytest.mark.parametrize(
    "option", ["--max-samples", "--max-concurrency", "--max-attempts", "--max-tokens"]
)
def test_numbers_are_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    with pytest.raises(SystemExit):
        main(command(tmp_path, option, "0"))
    assert f"{option}: 0 is less than 1" in capsys.readouterr().err


def test_what_is_worth_repeating_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: Teacher, messages: Any) -> None:
        raise ConnectionError("no route")

    data(tmp_path / "rows.jsonl", 1)
    with monkeypatch.context() as patch:
        patch.setattr(Teacher, "_result", broken)
        patch.setattr("selfcorrect_rag.training.labelling.MAX_TRIES", 1)
        assert main(command(tmp_path)) == 1
    assert '"failed": 1' in capsys.readouterr().out
    assert main(command(tmp_path)) == 0
    assert '"failed": 1' not in capsys.readouterr().out


def test_labels_of_rows_that_are_gone_are_not_in_the_file_and_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    data(rows, 5)
    assert main(command(tmp_path)) == 0
    both, given = out.read_bytes(), rows.read_text().splitlines(keepends=True)
    rows.write_text(given[1])
    capsys.readouterr()
    assert main(command(tmp_path)) == 0
    report = json.loads("\n".join(capsys.readouterr().out.splitlines()[2:-1]))
    labelled = sum(outcomes["labelled"] for outcomes in report["outcomes"].values())
    assert labelled == sum(sum(counts.values()) for counts in report["tokens"].values())
    assert 0 < labelled == len(read_critic_rows(out)) < len(both.splitlines())
    rows.write_text("".join(given))
    assert main(command(tmp_path)) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("0 calls")
    assert out.read_bytes() == both
