"""The Python of the sections on runs and sweeps works as written, with scripted weights."""

import re
from pathlib import Path

import pytest

from selfcorrect_rag.evaluation.run import Finished
from tests.crag_runs import WordEvaluator
from tests.reader.scripted_reader import ScriptedReader

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"


@pytest.fixture(autouse=True)
def _scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "selfcorrect_rag.reader.Reader.load",
        lambda folder=None: ScriptedReader({"Alexander Fleming": 0.9}),
    )
    monkeypatch.setattr("selfcorrect_rag.reader.ReaderEvaluator", lambda reader: WordEvaluator())


def run(heading: str) -> tuple[dict[str, object], str]:
    """The names that a section's Python makes, and what stands below it."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "evaluation.md", "exec"), names)
    return names, section.split(block)[1]


def test_the_python_of_the_section_on_runs() -> None:
    names, _ = run("Runs")
    finished = names["finished"]
    assert isinstance(finished, Finished)
    assert [(o.method, o.error) for o in finished.outcomes] == [("rag", ""), ("crag:strips=3", "")]
    assert finished.outcomes[0].answer == "Alexander Fleming"


def test_the_python_of_the_section_on_sweeps(capsys: pytest.CaptureFixture[str]) -> None:
    _, shown = run("Sweeps")
    printed = capsys.readouterr().out.splitlines()
    assert printed == [line[4:] for line in shown.splitlines() if line.startswith("    ")]
    assert len(printed) == 4
