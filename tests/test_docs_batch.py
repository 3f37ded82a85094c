"""The page on many questions is true: its columns, and its code as written."""

import json
import re
from pathlib import Path

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.batch.rows import COLUMNS, arrow_schema
from selfcorrect_rag.search import Index
from tests.snippets import BLOCK, ROOT

PAGE = (ROOT / "docs" / "batch.md").read_text(encoding="utf-8")


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with Index("my-index") as index:
        index.add([Document("Emma is a novel by Jane Austen.", metadata={"title": "Emma"})])
    rows = [{"question": f"Who wrote {name}?", "number": name} for name in ("Emma", "Dune")]
    Path("questions.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    names: dict[str, object] = {}
    for block in BLOCK.findall(PAGE):
        exec(compile(block, "batch.md", "exec"), names)
    assert capsys.readouterr().out == "2 0\n"
    answers = Path("answers/answers.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [json.loads(line)["kept"] for line in answers]
    assert kept == [{"number": "Emma"}, {"number": "Dune"}]


def test_every_column_is_shown_with_its_type() -> None:
    shown = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert shown == [(name, kind, what) for name, (kind, what) in COLUMNS.items()]
    assert arrow_schema().names == list(COLUMNS)
