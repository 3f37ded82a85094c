"""What the page on the generator shows works as written."""

import json
import re
import shlex
from pathlib import Path

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.cli import main
from selfcorrect_rag.training.generator import PRESETS
from selfcorrect_rag.training.rationales import RationaleSettings, write_template_rationales
from selfcorrect_rag.training.samples import Sample
from tests.test_docs import BLOCK, ROOT
from tests.training.toy_generator import toy

PAGE = (ROOT / "docs" / "generator.md").read_text(encoding="utf-8")
SHELL = re.compile(r"```bash\n(.*?)```", re.DOTALL)
SMALL = [
    "--model",
    "base",
    "--num-train-epochs",
    "0.1",
    "--batch-size",
    "4",
    "--per-device-batch-size",
    "4",
    "--held-out-ratio",
    "0",
]


def test_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for part in toy():
        part.save_pretrained("base")
    (row,) = re.findall(r"```json\n(.*?)\n```", PAGE)
    Path("generator.jsonl").write_text("\n".join([row] * 8))
    samples = [Sample(f"Who {i}?", ("she",), (Document("She."),)) for i in range(8)]
    write_template_rationales(samples, Path("rationales.jsonl"), RationaleSettings())
    printed = []
    for line in "".join(SHELL.findall(PAGE)).splitlines():
        command = shlex.split(line)
        if command[0] == "selfcorrect-rag":
            assert main([*command[1:], *SMALL]) == 0, line
            printed.append(capsys.readouterr().out)
    generator, instruct = printed
    settings = json.loads(generator.splitlines()[0])
    assert (settings["model"], settings["learning_rate"]) == ("base", PRESETS["7b"].learning_rate)
    assert settings["report_to"] == []
    assert "Jane Austen" not in generator, "rows are not printed"
    assert "the generator is in runs/generator/generator" in generator
    assert json.loads(instruct.splitlines()[0])["lr_scheduler_type"] == "cosine"
    assert "the model is in runs/instruct/model" in instruct
    (block,) = BLOCK.findall(PAGE)
    names: dict[str, object] = {"retriever": lambda query: [Document("Emma is by Jane Austen.")]}
    exec(compile(block, "generator.md", "exec"), names)
    assert names["llm"].get_token_ids("a")  # type: ignore[attr-defined]


def test_the_table_of_presets() -> None:
    (rows,) = re.findall(r"(?m)^\| `--preset` \|.*\n((?:\|.*\n)+)", PAGE)
    table = {
        cells[0].strip(" `"): [cell.strip() for cell in cells[2:]]
        for cells in (
            line.split("|")[1:-1] for line in rows.splitlines() if re.match(r"\| `\w", line)
        )
    }
    assert list(table) == list(PRESETS)
    for name, (model, epochs, rate, longest) in table.items():
        preset = PRESETS[name]
        assert name == "nano" or model == preset.model
        assert (float(epochs), int(longest)) == (preset.num_train_epochs, preset.max_length)
        assert (float(rate.split(",")[0]), rate.split(", ")[1]) == (
            preset.learning_rate,
            preset.lr_scheduler_type,
        )


def test_bad_rows_and_presets_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.jsonl").write_text("{}")
    files = ["--data", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "run")]
    for kind in ("generator", "instruct"):
        assert main(["train", kind, *files]) == 2
        assert "rows.jsonl:1: not {" in capsys.readouterr().err
    for wrong in (["--preset", "70b"], ["--lr-scheduler-type", "never"], ["--max-length", "0"]):
        with pytest.raises(SystemExit):
            main(["train", "generator", *files, *wrong])
