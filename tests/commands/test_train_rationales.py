"""`selfcorrect-rag train rationales`: from files to training data; its docs."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake import FakeListLLM

from selfcorrect_rag.cli import main

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "instruct-rag-training.md").read_text(encoding="utf-8")
ROWS = [
    {
        "question": f"Where was P{i} born?",
        "answers": [f"C{i}"],
        "documents": [{"title": f"P{i}", "text": f"P{i} was born in C{i}."}],
    }
    for i in range(40)
]
SLOW = """
import os
import time

from langchain_core.language_models.llms import LLM


class Slow(LLM):
    @property
    def _llm_type(self):
        return "slow"

    def _call(self, prompt, stop=None, run_manager=None, **kwargs):
        with open(os.environ["CALLS"], "a") as calls:
            calls.write(prompt.split("question: ")[1].split("\\n")[0] + "\\n")
        time.sleep(float(os.environ["SECONDS"]))
        return "Document [1] says " + prompt.split("Document [1]")[1].split("\\n")[0]


llm = Slow()
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("slow_model.py").write_text(SLOW)
    Path("rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))


def command(out: str, *more: str) -> list[str]:
    model = ["--model", "slow_model:llm", "--max-concurrency", "3"]
    return ["train", "rationales", "--data", "rows.jsonl", "--out", out, *model, *more]


def test_what_it_says(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("CALLS", "calls")
    monkeypatch.setenv("SECONDS", "0")
    assert main(command("out.jsonl", "--estimate")) == 0
    said = capsys.readouterr()
    assert said.err.startswith("40 rows, 40 calls to make: about ")
    assert not Path("calls").exists()
    assert not Path("out.jsonl.run").exists()
    assert main(command("out.jsonl", "--dataset", "popqa", "--consistent-only")) == 0
    report = json.loads(capsys.readouterr().out.split("\nthe rationales are in ")[0])
    assert report["written"] == report["relevant"] == report["usage"]["calls"] == 40
    assert report["consistent"] == report["consistent_of_relevant"] == 1.0
    for other in ("--dataset", "asqa"), ("--temperature", "1"):
        for estimate in [], ["--estimate"]:
            assert main(command("out.jsonl", *other, *estimate)) == 2
            assert f"other settings ({other[0][2:]}" in capsys.readouterr().err
    template = ["train", "rationales", "--data", "rows.jsonl", "--template", "--out"]
    assert main([*template, "out.jsonl"]) == 2
    assert "holds a model's rationales" in capsys.readouterr().err
    assert main([*template, "new.jsonl", "--estimate"]) == 0
    assert not Path("new.jsonl").exists()
    Path("rows.jsonl").rename("moved.jsonl")
    assert main(command("out.jsonl")) == 2
    assert "cannot read rows.jsonl" in capsys.readouterr().err


def test_failed_rows_are_told(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("CALLS", "no/such/folder")
    Path("rows.jsonl").write_text(json.dumps(ROWS[0]))
    assert main(command("new/out.jsonl")) == 1
    assert "new/out.jsonl.run/failures.jsonl" in capsys.readouterr().out
    assert "FileNotFoundError" in Path("new/out.jsonl.run/failures.jsonl").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--data", "none.jsonl"], "cannot read none.jsonl"),
        (["--data", "bad.jsonl"], "bad.jsonl:2: no answers"),
        (["--out", "rows.jsonl"], "rows.jsonl is the data"),
        (["--out", "."], "is a folder"),
        (["--out", "bad.jsonl"], "bad.jsonl is not of this command's making"),
        (["--model", "slow_model:absent"], "pip install"),
        (["--model", "json:__doc__"], "not a LangChain model"),
    ],
)
def test_mistakes_are_one_line(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    for name in ("langchain", "langchain.chat_models"):
        monkeypatch.setitem(sys.modules, name, None)
    Path("bad.jsonl").write_text(json.dumps(ROWS[0]) + '\n{"question": "Q", "documents": []}\n')
    assert main([*command("out.jsonl"), *options]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("selfcorrect-rag: ")
    assert said in last


def test_the_template_and_the_ablations() -> None:
    base = ["train", "rationales", "--data", "rows.jsonl", "--out", "out.jsonl"]
    assert main([*base, "--template"]) == 0
    first = json.loads(Path("out.jsonl").read_text().splitlines()[0])
    assert "only documents [1] contain relevant information" in first["rationale"]
    with pytest.raises(SystemExit):
        main([*base, "--template", "--model", "slow_model:llm"])
    with pytest.raises(SystemExit):
        main(base)


def test_the_commands_of_the_docs(monkeypatch: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = re.findall(r"```json\n(.*?)```", DOCS, re.DOTALL)
    Path("rows.jsonl").write_text(row)
    monkeypatch.setattr(
        "selfcorrect_rag.commands.train_rationales.find_language_model",
        lambda name, **options: FakeListLLM(responses=[f"Jane Austen, by {name} {options}"]),
    )
    (block,) = re.findall(r"```bash\n(.*?)```", DOCS, re.DOTALL)
    commands = [line for line in block.splitlines() if line.startswith("selfcorrect-rag ")]
    for line in commands:
        assert main(shlex.split(line)[1:]) == 0
    written = json.loads(Path("popqa.jsonl").read_text())
    assert written["rationale"] == "Jane Austen, by openai:gpt-4o-mini {'temperature': 0.0}"
    assert '"written": 1' in capsys.readouterr().out


def test_the_python_of_the_docs(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", DOCS, re.DOTALL)
    exec(
        compile(block, "instruct-rag-training.md", "exec"),
        {"llm": FakeListLLM(responses=["It is C1."])},
    )
    assert capsys.readouterr().out.startswith("0.025 0.025 TokenUsage(calls=40")


def test_every_option_that_the_docs_name_exists(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "rationales", "--help"])
    known = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))
    assert set(re.findall(r"--[a-z][a-z-]*", DOCS)) <= known
