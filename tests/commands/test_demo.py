"""`selfcorrect-rag demo`, whole: every graph, every action, and notes of one's own."""

import re
from pathlib import Path

import pytest

from selfcorrect_rag.cli import main
from selfcorrect_rag.commands.demo_comparison import RIGHT, UNANSWERED, WRONG, verdict
from selfcorrect_rag.evaluation.rows import Outcome, Question


def test_the_demo_shows_what_the_readme_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["demo", "--index", str(tmp_path / "demo")]) == 0
    shown = capsys.readouterr().out
    parts = re.split(
        r"(?m)^(self-rag|self-crag|crag|instruct-rag|two notes\D+|plain RAG\D+) ─+\n", shown
    )[1:]
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
    utzon, buck = by_graph["crag"]
    assert "Correct: best score" in utzon
    for name, text in (("Utzon", utzon), ("Leffert Buck", buck)):
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
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (recorded,) = re.findall(r"(?s)```\n(Who wrote Don Quixote.*?)\n```", readme)
    (compared,) = by_graph["plain RAG and the graphs, side by side"]
    assert _without_seconds(recorded) == _without_seconds(compared.partition("  35 of the 140 ")[0])
    first_screen = readme.partition("## Install")[0]
    promised = _best_rows(first_screen)
    assert len(promised) == 2
    printed = _best_rows(shown)
    for answer, figures in promised.items():
        # Models compute in bfloat16 where the processor can, else in float32.
        assert printed[answer] == pytest.approx(figures, abs=0.05), answer


def _best_rows(shown: str) -> dict[str, list[float]]:
    """The figures of each candidate that was kept first, by its text."""
    return {
        answer.strip(): [float(figure) for figure in figures.split()]
        for figures, answer in re.findall(r"(?m)^ ?\*  1((?:\s+-?\d\.\d\d){5}) (.+)", shown)
    }


def _without_seconds(shown: str) -> list[list[str]]:
    return [re.sub(r"\d+\.\d+", "S", line).split() for line in shown.strip().splitlines()]


QUESTION = Question("1", "Who?", ("Ann Lee",))


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (Outcome("1", "rag", "It was Ann Lee."), RIGHT),
        (Outcome("1", "rag", "Bob"), WRONG),
        (Outcome("1", "rag", "The documents do not say.", refused=True), UNANSWERED),
        (Outcome("1", "rag", "", error="the model is down"), UNANSWERED),
    ],
)
def test_an_answer_is_right_wrong_or_none(outcome: Outcome, expected: str) -> None:
    assert verdict(QUESTION, outcome) == expected
