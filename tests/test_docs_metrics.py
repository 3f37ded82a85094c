"""What the page on evaluation shows of metrics and statistics works as written."""

import json
import re
from typing import Any

import pytest

from tests.test_docs import BLOCK, ROOT

PAGE = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def said(text: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    names: dict[str, Any] = {}
    for block in BLOCK.findall(text):
        exec(compile(block, "evaluation.md", "exec"), names)
    return capsys.readouterr().out.splitlines()


def test_the_metrics_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(section("Metrics"), capsys) == [
        "0.0 0.5",
        "citation_recall 1.0",
        "citation_precision 0.5",
        "2 1 1 0.75",
        "0.9 0.25 1.0",
        "0.4 0.5 0.5",
    ]


def test_every_metric_is_in_the_table() -> None:
    from selfcorrect_rag.evaluation.metrics import METRICS

    named = [row.split("|")[1] for row in section("Metrics").splitlines() if row.startswith("| `")]
    names = [name for cell in named for name in cell.replace("`", "").split(",")]
    assert sorted(name.strip() for name in names) == sorted(METRICS)


def test_the_components_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(section("Components"), capsys) == [
        "recall_at_1 1.0 {'row': 0, 'derived': 1}",
        "grade_auc 1.0 {'row': 0, 'derived': 1}",
        "action_accuracy 1.0 {'row': 0, 'derived': 1}",
        "strip_precision 0.5 {'row': 0, 'derived': 1}",
        "None",
    ]


def test_every_component_is_in_the_table_and_the_labels_of_the_page_are_read() -> None:
    from selfcorrect_rag.evaluation.components import COMPONENTS
    from selfcorrect_rag.evaluation.task_formats import question_of

    text = section("Components")
    cells = [row.split("|")[1] for row in text.splitlines() if row.startswith("| `")]
    names = [name.strip(" `") for cell in cells for name in cell.split(",")]
    assert sorted(names) == sorted(COMPONENTS)
    row = json.loads(text.split("```json\n")[1].split("```")[0])
    assert question_of(row, 1).extra["reflections"]["retrieval"] == "[Retrieval]"


def test_the_judges_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    expected = re.findall(r"^print\(.*\)  # (.*)$", section("Judges"), re.MULTILINE)
    assert said(section("Judges"), capsys) == expected == ["True", "None", "(True, False)"]


def test_the_neighbours_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openevals")
    section_of_two = section("Neighbours").split("**RAGAS**")[0]
    imports = "```python\nfrom langchain_core.language_models import FakeListChatModel\n"
    imports += "from selfcorrect_rag.evaluation.rows import Outcome, Question\n```\n"
    printed = re.findall(r"^    ([a-z\[].*)$", re.sub(BLOCK, "", section_of_two), re.MULTILINE)
    lines = said(imports + section_of_two, capsys)
    assert [line for line in lines if line in printed] == printed
    assert len(printed) == 4


def test_the_statistics_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(section("Statistics"), capsys)
    assert lines[0] in section("Statistics")
    assert [line.split(":")[0] for line in lines] == [
        "rag and self-rag cannot be told apart",
        "crag is better than rag",
        "crag is better than self-rag",
    ]
