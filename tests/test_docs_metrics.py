"""What the page on evaluation shows of metrics and statistics works as written."""

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


def test_the_statistics_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(section("Statistics"), capsys)
    assert lines[0] in section("Statistics")
    assert [line.split(":")[0] for line in lines] == [
        "rag and self-rag cannot be told apart",
        "crag is better than rag",
        "crag is better than self-rag",
    ]
