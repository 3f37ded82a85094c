"""The page on documents works as written, with the packages that it names."""

from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.reader import ReaderEvaluator, ReaderLLM
from selfcorrect_rag.search import Index, index_paths
from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "documents.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_pages_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("langchain_chroma", "langchain_tavily"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    for owner, name in (("ada", "Priya Raman"), ("ben", "Tom Weber")):
        text = f"---\nowner: {owner}\n---\n\n{name} approves the deployments.\n"
        Path("notes", f"{owner}.md").write_text(text)
    index_paths(["notes"], Index(".selfcorrect/index"))
    llm = ReaderLLM.load()
    names: dict[str, Any] = {"llm": llm, "evaluator": ReaderEvaluator(llm.reader)}
    for block in BLOCK.findall(PAGE):
        exec(compile(block, "documents.md", "exec"), names)
    assert names["answered"]["answer"] == "Priya Raman"
    assert [d.metadata["owner"] for d in names["answered"]["passages"]] == ["ada"]
    assert names["report"]["num_added"] == 2
    assert names["from_store"]["citations"]
    assert names["with_web"].name
