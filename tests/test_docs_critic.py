"""What the page on the critic shows works as written."""

import re
import shlex
from pathlib import Path

import pytest

from selfcorrect_rag.cli import main
from tests.test_docs import BLOCK, ROOT
from tests.training.teacher import quick
from tests.training.test_critic_data import data

PAGE = (ROOT / "docs" / "critic.md").read_text(encoding="utf-8")


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data(tmp_path / "rows.jsonl", 30)
    (shell,) = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in shell.replace("openai:gpt-4o", "tests.training.teacher:quick").splitlines():
        words = shlex.split(line)
        if words[0] == "selfcorrect-rag":
            assert main(words[1:]) == 0, line
    assert (tmp_path / "labels.jsonl").exists()


def test_the_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data(tmp_path / "rows.jsonl", 4)
    (block,) = BLOCK.findall(PAGE)
    names: dict[str, object] = {"chat_model": quick}
    exec(compile(block, "critic.md", "exec"), names)
    assert names["report"].outcomes["ISUSE"]["labelled"] > 0  # type: ignore[attr-defined]


def test_the_table_of_aspects() -> None:
    from selfcorrect_rag.aspect import OPTIONAL
    from selfcorrect_rag.critic_prompts import ASPECTS

    words = {"segment": "the sentence", "output": "the whole output"}
    rows = [
        [c.strip() for c in line.split("|")[1:5]] for line in PAGE.splitlines() if "| `" in line
    ]
    assert [row[0].strip("`") for row in rows] == list(ASPECTS)
    for (_, group, needs, besides), aspect in zip(rows, ASPECTS.values(), strict=True):
        assert group.split(",")[0] == aspect.group
        fields = [
            words.get(field, f"`{field}`") for field in aspect.fields if field not in OPTIONAL
        ]
        assert set(needs.split(", ")) | {"`instruction`"} == set(fields)
        assert besides == ", ".join(f"`{field}`" for field in aspect.fields if field in OPTIONAL)
