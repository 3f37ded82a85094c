"""`selfcorrect-rag eval judge` and `eval export`, over the folder of a finished run."""

import json
import re
import shlex
from pathlib import Path

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from selfcorrect_rag.cli import main
from selfcorrect_rag.evaluation.run import run_methods
from tests.commands.mistakes import assert_said_in_one_line
from tests.evaluation.scripted_parts import ScriptedParts, opened
from tests.evaluation.test_runs import SIX

MODEL = f"{__name__}:yes_man"
yes_man = FakeListChatModel(responses=["Yes."])


@pytest.fixture(autouse=True)
def _run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    parts = ScriptedParts()
    methods = [opened(spec, parts) for spec in ("rag_first", "crag")]
    run_methods(SIX, methods, Path("runs/first"))


def judge(*options: str) -> int:
    return main(["eval", "judge", "runs/first", "--judge-model", MODEL, *options])


def test_a_judged_run_has_new_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert judge("--judge", "correctness") == 0
    said = capsys.readouterr()
    assert re.search(r"correctness: about \d+ model calls", said.err)
    assert re.search(r"rag_first +0\.000 .* 1\.000 \[1\.000, 1\.000\]", said.out)
    assert re.search(r"rag_first +6 +0 +0 +0 +0\.000 \[0\.000, 0\.000\]", said.out)
    made = json.loads(Path("runs/first/summary.json").read_text("utf-8"))
    assert made["judges"]["correctness"]["model"] == MODEL
    assert "right for the judge alone" in Path("runs/first/report.html").read_text("utf-8")
    runs = ("runs/first", "runs/first")
    assert main(["eval", "compare", *runs, "--metric", "judged_correctness"]) == 0
    assert "rag_first" in capsys.readouterr().out


def test_metrics_of_a_judged_run_stay(capsys: pytest.CaptureFixture[str]) -> None:
    judge("--judge", "correctness")
    capsys.readouterr()
    assert judge("--judge", "alignment", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    metrics = made["methods"]["crag"]["metrics"]
    assert list(metrics) == ["match", "em", "f1", "judged_correctness", "judged_alignment"]


def test_an_estimate_asks_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert judge("--judge", "faithfulness", "--estimate") == 0
    assert re.search(r"faithfulness: about \d+ model calls", capsys.readouterr().err)
    assert not Path("runs/first/judgements.jsonl").exists()


def test_a_bound_stops_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert judge("--judge", "correctness", "--max-calls", "2") == 1
    assert "stopped by max_calls: the same command goes on" in capsys.readouterr().err
    assert judge("--judge", "correctness") == 0


def test_the_command_of_the_page() -> None:
    page = Path(__file__).parents[2] / "docs" / "evaluation.md"
    shown = page.read_text("utf-8").replace("\\\n", " ")
    (command,) = re.findall(r"^selfcorrect-rag (eval judge .*)$", shown, re.MULTILINE)
    assert main(shlex.split(command.replace("openai:gpt-4o-mini", MODEL))) == 0


def test_a_run_is_exported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "export", "runs/first", "--to", "ragas", "--method", "crag"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["method"] for row in rows] == ["crag"] * 6
    assert rows[0]["response"] == "Lind"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["judge", "runs/first", "--judge", "correctness"], "--judge-model"),
        (["judge", "nowhere", "--judge", "facts", "--judge-model", MODEL], "holds no run"),
        (["compare", *["runs/first"] * 2, "--metric", "judged_facts"], "judged_facts: there are"),
        (["export", "runs/first"], "--to TOOL"),
        (["export", "runs/first", "--to", "ragas", "--method", "no"], "no method 'no'"),
    ],
)
def test_mistakes_are_said_in_one_line(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *options]) == 2
    assert_said_in_one_line(capsys, message)
