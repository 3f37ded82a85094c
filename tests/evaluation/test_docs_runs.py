"""The Python of the section on runs works as written, but for the reader's own weights."""

import re
from pathlib import Path

import pytest

from selfcorrect_rag.evaluation.run import Finished
from tests.crag_runs import WordEvaluator
from tests.reader.scripted_reader import ScriptedReader

PAGE = Path(__file__).parents[2] / "docs" / "evaluation.md"


def test_the_python_of_the_section_on_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "selfcorrect_rag.reader.Reader.load",
        lambda folder=None: ScriptedReader({"Alexander Fleming": 0.9}),
    )
    monkeypatch.setattr("selfcorrect_rag.reader.ReaderEvaluator", lambda reader: WordEvaluator())
    section = PAGE.read_text(encoding="utf-8").split("\n## Runs\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "evaluation.md", "exec"), names)
    finished = names["finished"]
    assert isinstance(finished, Finished)
    assert [(o.method, o.error) for o in finished.outcomes] == [("rag", ""), ("crag:strips=3", "")]
    assert finished.outcomes[0].answer == "Alexander Fleming"
