"""`selfcorrect-rag ask --html`: the page beside what is printed."""

import json
from pathlib import Path

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.cli import main
from selfcorrect_rag.commands.ask import SETTINGS
from selfcorrect_rag.search import BM25Index
from tests.crag_runs import WordEvaluator
from tests.render.pages import Page


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ask") / "index"
    with BM25Index(path) as made:
        made.add([Document("Tarnholm is a vague <b>town</b>.", metadata={"title": "Tarnholm"})])
    return path


@pytest.mark.parametrize("graph", SETTINGS)
def test_a_page_of_each_graph(
    graph: str,
    index: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("selfcorrect_rag.reader.ReaderEvaluator", lambda reader: WordEvaluator())
    file = tmp_path / "run.html"
    question = ["ask", "What is Tarnholm?", "--graph", graph, "--index", str(index)]
    question += ["--mode", "adaptive"] if graph.startswith("self") else []
    assert main([*question, "--html", str(file), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    page = Page(file.read_text(encoding="utf-8"))
    assert "What is Tarnholm?" in page.text
    assert "Tarnholm is a vague <b>town</b>." in page.text
    assert f"{result['seconds']:.2f} s" in page.text
    assert bool(page.of("rect", "tick")) == ("crag" in graph or graph == "self-rag")


def test_a_place_that_cannot_be_written_is_one_line(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (tmp_path / "nowhere" / "run.html", tmp_path):
        assert main(["ask", "Who?", "--index", str(index), "--html", str(file)]) == 2
        error = capsys.readouterr().err
        assert f"--html {file}" in error
        assert len(error.splitlines()) == 1
