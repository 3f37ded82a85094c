"""`selfcorrect-rag ask` says what is wrong before it loads anything."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from selfcorrect_rag.cli import main

CHECKS = [
    (["--tresh", "0.3"], "--tresh: did you mean --threshold?"),
    (["--tresh=0.3"], "--tresh: did you mean --threshold?"),
    (["--graph", "slef-rag"], "'slef-rag': did you mean self-rag?"),
    (["--index", "noted"], "no folder noted: did you mean notes?"),
    (["--web", "noted", "--graph", "crag"], "no folder noted: did you mean notes?"),
    (["--web", "tavily", "--graph", "crag"], "TAVILY_API_KEY is not set"),
    (["--model", "runs/generater"], "runs/generater: did you mean runs/generator?"),
    (["--engine", "reader", "--model", "reader"], "no folder reader"),
    (["--evaluator", "./evaluator", "--graph", "crag"], "no folder evaluator"),
    (["--store", "my_stors:notes"], "no module my_stors: did you mean my_stores?"),
    (["--engine", "chat", "--model", "openai:gpt-4o-mini"], "OPENAI_API_KEY is not set"),
    (["--engine", "chat", "--model", "opnai:gpt-4o-mini"], "opnai: did you mean openai?"),
    (["--store", "my_stores:notes", "--index", "notes"], "not with --index"),
    (["--upper", "-0.5", "--lower", "0.5", "--graph", "crag"], "lower <= upper"),
    (["--threshold", "2"], "--threshold"),
]
LOADED = """
import sys
from selfcorrect_rag.cli import main
try:
    code = main(["ask", *sys.argv[1:]])
except SystemExit as ended:
    code = ended.code
print(code, [name for name in ("langgraph", "torch", "chromadb") if name in sys.modules])
"""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("notes", "runs/generator"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "my_stores.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    for key in ("TAVILY_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(key, raising=False)


@pytest.mark.parametrize(("options", "said"), CHECKS)
def test_a_mistake_is_one_line_with_the_nearest_right_name(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["ask", "Who?", *options])
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_misspelt_command_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["aks", "Who?"])
    assert "did you mean ask?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [[" "], ["Who?", "--tresh", "1"], ["Who?", "--index", "noted"]]
)
def test_nothing_is_loaded_for_a_mistake(arguments: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "2 []"


def test_a_hub_that_cannot_be_reached_is_asked_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's client alone would retry each file for 23 seconds."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.hf_api.constants.ENDPOINT", "http://127.0.0.1:9")
    started = time.monotonic()
    assert main(["ask", "Who?", "--model", "nowhere/at-all"]) == 2
    assert time.monotonic() - started < 20
    (line,) = capsys.readouterr().err.splitlines()
    assert "nowhere/at-all is no folder here" in line
