"""`selfcorrect-rag demo`, whole: every graph, every action, with the shipped models."""

import re
from pathlib import Path

import pytest

from selfcorrect_rag.cli import main


def test_the_demo_shows_what_the_readme_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["demo", "--index", str(tmp_path / "demo")]) == 0
    shown = capsys.readouterr().out
    parts = re.split(r"(?m)^(self-rag|self-crag|crag|instruct-rag) ─+\n", shown)[1:]
    runs = list(zip(parts[::2], parts[1::2], strict=True))
    by_graph: dict[str, list[str]] = {}
    for graph, text in runs:
        by_graph.setdefault(graph, []).append(text)
    wrote, thanks, refused = by_graph["self-rag"]
    assert "George Eliot. [1]" in wrote
    assert "no retrieval: P(retrieve)" in thanks
    assert "nothing is cited" in refused
    (corrected,) = by_graph["self-crag"]
    assert "Incorrect: best score" in corrected
    assert "a second local corpus in place of the web" in corrected
    assert "Monroeville" in corrected
    for action, text in zip(("Correct", "Ambiguous", "Incorrect"), by_graph["crag"], strict=True):
        assert f"{action}: best score" in text
    (explained,) = by_graph["instruct-rag"]
    assert "answer is: Miguel de Cervantes" in explained
    named = re.search(r"Document \[(\d)\]", explained)
    assert named
    assert re.search(rf"D{named[1]}\s+useful\s+Don Quixote:", explained)
