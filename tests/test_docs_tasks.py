"""What the section on tasks shows works as written, and prints what its comments say."""

import re
from pathlib import Path

import pytest

from selfcorrect_rag.evaluation.task_formats import FORMATS
from tests.test_docs import BLOCK, ROOT

SECTION = re.split(
    r"^## ", (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8"), flags=re.MULTILINE
)


def test_the_section_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (section,) = (part for part in SECTION if part.startswith("Tasks\n"))
    names: dict[str, object] = {}
    expected = []
    for block in BLOCK.findall(section):
        exec(compile(block, "evaluation.md", "exec"), names)
        expected += re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)
    assert len(expected) == 4
    assert capsys.readouterr().out.splitlines() == expected
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", section, re.MULTILINE) == list(FORMATS_AS_SHOWN)


FORMATS_AS_SHOWN = (
    *("qa", "arc", "pubhealth", "asqa", "popqa", "triviaqa", "nq", "2wikimultihopqa"),
    *("eli5", "bio", "yes-no", "pubmedqa"),
)


def test_every_format_is_shown() -> None:
    assert set(FORMATS_AS_SHOWN) == set(FORMATS)
