"""The Python of docs/evaluation.md and of the examples works as written."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.evaluation.metrics import METRICS
from selfcorrect_rag.evaluation.outcomes import Outcome
from selfcorrect_rag.evaluation.runner import Run, run_methods
from selfcorrect_rag.evaluation.tasks import FORMATS, Question
from tests.evaluation.own_graphs import ScriptedParts
from tests.evaluation.test_runner import method

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("heading", ["Tasks", "Metrics", "Statistics"])
def test_the_python_of_a_section_prints_what_the_page_says(
    heading: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text, names = section(heading), dict[str, Any]()
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, "evaluation.md", "exec"), names)
    printed = capsys.readouterr().out
    said = re.findall(r"^print\(.*\)  # (.*)$|^    (no significant .*)$", text, re.MULTILINE)
    assert said
    for either in said:
        assert "".join(either) in printed


def test_the_python_of_the_section_on_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    class Parts(ScriptedParts):
        def __init__(self, config: object) -> None:
            super().__init__()

        def __enter__(self) -> "Parts":
            return self

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr("selfcorrect_rag.serving.parts.Parts", Parts)
    (block,) = re.findall(r"```python\n(.*?)```", section("Methods"), re.DOTALL)
    exec(compile(block, "evaluation.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["rag", "crag:strips=3"] * 2


def test_every_format_and_metric_is_in_its_table() -> None:
    for heading, names in (("Tasks", FORMATS), ("Metrics", METRICS)):
        cells = [
            row.split("|")[1] for row in section(heading).splitlines() if row.startswith("| `")
        ]
        shown = [name.strip(" `") for cell in cells for name in cell.split(",")]
        assert sorted(shown) == sorted(names)


def test_the_example_of_a_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("openevals")
    file = ROOT / "examples" / "judge_a_run.py"
    spec = importlib.util.spec_from_file_location("judge_a_run", file)
    assert spec
    assert spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    questions = [Question("1", "who?", ("WHO? of 0",)), Question("2", "why?", ("because",))]
    run = run_methods(questions, [method()], tmp_path)
    assert [row["reference"] for row in example.ragas_rows(run)] == ["WHO? of 0", "because"]
    refusing = Run([Question("1", "?", unanswerable=True)], [Outcome("1", "m", "x")])
    assert "do not say" in next(example.openevals_rows(refusing))["reference_outputs"]

    asked: list[Any] = []

    class Judge(FakeListChatModel):
        """Gives structured output with a score, as openevals asks for."""

        def with_structured_output(self, schema: Any, **options: Any) -> Any:
            def say(messages: Any) -> Any:
                asked.append(messages)
                return {"reasoning": "it says so", "score": True}

            return RunnableLambda(say)

    example.main(str(tmp_path), Judge(responses=[]))
    assert len(asked) == 2
    assert capsys.readouterr().out == "m: why? -> WHY? of 0: it says so\n"
