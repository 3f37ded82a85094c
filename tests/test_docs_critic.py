"""What the page on the critic shows works as written."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from selfcorrect_rag.cli import main
from tests.test_docs import BLOCK, ROOT
from tests.training.critic_runs import data
from tests.training.teacher import quick
from tests.training.test_critic import encoder_decoder

PAGE = (ROOT / "docs" / "critic.md").read_text(encoding="utf-8")


SHELL = re.compile(r"```bash\n(.*?)```", re.DOTALL)
MODELS = {"openai:gpt-4o": "tests.training.teacher:quick", "google/flan-t5-xl": "base"}


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model, words = encoder_decoder()
    model.save_pretrained("base")
    words.save_pretrained("base")
    data(tmp_path / "rows.jsonl", 30)
    for line in "".join(SHELL.findall(PAGE)).splitlines():
        command = [MODELS.get(word, word) for word in shlex.split(line)]
        if command[0] == "selfcorrect-rag":
            assert main(command[1:]) == 0, line
    (tmp_path / "labels.jsonl").unlink()
    shutil.rmtree("labels.jsonl.run")
    label, judge = BLOCK.findall(PAGE)
    names: dict[str, object] = {"chat_model": quick}
    exec(compile(label, "critic.md", "exec"), names)
    assert names["report"].outcomes["ISUSE"]["labelled"] > 0  # type: ignore[attr-defined]
    exec(compile(judge, "critic.md", "exec"), names)


def test_the_table_of_prompts() -> None:
    from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
    from selfcorrect_rag.prompts.critique import OPTIONAL

    words = {"segment": "the sentence", "output": "the whole output"}
    rows = [
        [c.strip() for c in line.split("|")[1:5]] for line in PAGE.splitlines() if "| `" in line
    ]
    assert [row[0].strip("`") for row in rows] == list(CRITIQUE_PROMPTS)
    for (_, group, needs, besides), prompt in zip(rows, CRITIQUE_PROMPTS.values(), strict=True):
        assert group.split(",")[0] == prompt.group
        fields = [
            words.get(field, f"`{field}`") for field in prompt.fields if field not in OPTIONAL
        ]
        assert set(needs.split(", ")) | {"`instruction`"} == set(fields)
        assert besides == ", ".join(f"`{field}`" for field in prompt.fields if field in OPTIONAL)
