"""`selfcorrect-rag demo`, whole: every graph, every action, and notes of one's own."""

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
    parts = re.split(r"(?m)^(self-rag|self-crag|crag|instruct-rag|two notes\D+) ─+\n", shown)[1:]
    runs = list(zip(parts[::2], parts[1::2], strict=True))
    by_graph: dict[str, list[str]] = {}
    for graph, text in runs:
        by_graph.setdefault(graph, []).append(text)
    discovered, thanks, refused = by_graph["self-rag"]
    assert "Alexander Fleming [1]" in discovered
    assert "no retrieval: P(retrieve)" in thanks
    assert "nothing is cited" in refused
    (corrected,) = by_graph["self-crag"]
    assert "Incorrect: best score" in corrected
    assert "a second local corpus in place of the web" in corrected
    assert "Monroeville" in corrected
    utzon, london, buck = by_graph["crag"]
    assert "Correct: best score" in utzon
    for name, text in (("Utzon", utzon), ("Jack London", london), ("Leffert Buck", buck)):
        assert re.search(rf"{name} \[1\]", text)
    (explained,) = by_graph["instruct-rag"]
    assert re.search(r"D\d\s+useful\s+Guernica:", explained)
    assert "Pablo Picasso" in explained
    (notes,) = by_graph["two notes of a person's own"]
    port, approves, rent = notes.split("\n\n")[1:4]
    assert "8443 [1]" in port
    assert "notes/staging.md" in port
    assert "Priya Raman [1]" in approves
    assert "The documents do not say." in rent
    assert "nothing is cited" in rent
    first_screen = (Path(__file__).parents[2] / "README.md").read_text().partition("## Install")[0]
    readme_rows = [" ".join(row.split()) for row in re.findall(r"(?m)^ \*  1 .*", first_screen)]
    assert len(readme_rows) == 2
    printed = [" ".join(line.split()) for line in shown.splitlines()]
    assert set(readme_rows) <= set(printed)
