"""What the page on pictures of runs shows works as written."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.cli import main
from selfcorrect_rag.demo import demo_passages, load_generator
from selfcorrect_rag.search import BM25Index
from tests.crag_runs import PagesWebSearch, WordEvaluator
from tests.render.pages import Page
from tests.test_docs import BLOCK, ROOT
from tests.test_docs_critic import SHELL

PAGE = (ROOT / "docs" / "render.md").read_text(encoding="utf-8")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BM25Index:
    """The demo corpus, without the time that its embeddings take."""
    monkeypatch.chdir(tmp_path)
    index = BM25Index(tmp_path / "index")
    index.add(list(demo_passages()))
    return index


def test_the_python_runs(index: BM25Index, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"llm": load_generator(), "retriever": index.as_retriever()}
    for block in BLOCK.findall(PAGE):
        exec(compile(block, "render.md", "exec"), names)
    page = Page(Path("run.html").read_text(encoding="utf-8"))
    assert "A first try" in page.text
    assert "Miguel de Cervantes" in page.text
    (route,) = PAGE.split("```mermaid\n")[1:]
    assert capsys.readouterr().out.strip() == route.split("```")[0].strip()


def test_the_commands_run(
    index: BM25Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("selfcorrect_rag.serving.parts.demo_index", lambda: index)
    monkeypatch.setattr("selfcorrect_rag.serving.parts.demo_web", PagesWebSearch)
    monkeypatch.setattr("selfcorrect_rag.reader.ReaderEvaluator", lambda reader: WordEvaluator())
    for line in "".join(SHELL.findall(PAGE)).splitlines():
        command, _, file = line.partition(" > ")
        assert main(shlex.split(command)[1:]) == 0
        said = capsys.readouterr().out
        if file:
            Path(file).write_text(said, encoding="utf-8")
    assert "weight_issup 2.0" in Page(Path("again.html").read_text(encoding="utf-8")).text
    for name, graph in (("run.html", "Self-RAG"), ("crag.html", "CRAG")):
        assert f"A run of {graph}" in Page(Path(name).read_text(encoding="utf-8")).text
