"""`selfcorrect-rag completion`: what a real bash completes with the script."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ASK = """
source ./script
COMP_WORDS=(selfcorrect-rag "$@")
COMP_CWORD=$#
_shtab_selfcorrect_rag
printf '%s\\n' "${COMPREPLY[@]}"
"""


def script(shell: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-m", "selfcorrect_rag.cli", "completion", shell],
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion")
    (path / "script").write_text(script("bash"), encoding="utf-8")
    (path / "saved.json").touch()
    return path


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["ch"], ["chat"]),
        (["train", "gen"], ["generator", "generator-data"]),
        (["ask", "--gra"], ["--graph"]),
        (["ask", "--graph", "self"], ["self-rag", "self-crag"]),
        (["ask", "--again", "sav"], ["saved.json"]),
        (["eval", "--judge", "corr"], ["correctness"]),
    ],
)
def test_bash_completes(folder: Path, typed: list[str], completed: list[str]) -> None:
    ran = subprocess.run(
        ["bash", "-c", ASK, "bash", *typed], cwd=folder, capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == completed


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_one(shell: str) -> None:
    printed = script(shell)
    assert "instruct-rag" in printed
    if there := shutil.which(shell):
        subprocess.run([there, "-n"], input=printed, text=True, check=True)
