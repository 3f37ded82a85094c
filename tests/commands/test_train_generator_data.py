"""`selfcorrect-rag train generator-data`: from files to rows; its page."""

import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.cli import main
from selfcorrect_rag.demo import demo_passages
from selfcorrect_rag.search import BM25Index, ChromaIndex
from selfcorrect_rag.training.generator_rows import order_faults, read_generator_rows
from tests.commands.mistakes import assert_said_in_one_line
from tests.search.stand_ins import WordHash
from tests.test_docs import BLOCK, ROOT
from tests.training.generator_runs import ROWS, opinionated
from tests.training.teacher import Teacher

PAGE = (ROOT / "docs" / "generator-data.md").read_text(encoding="utf-8")
SHELL = re.compile(r"```bash\n(.*?)```", re.DOTALL)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_text("".join(json.dumps(row._asdict()) + "\n" for row in ROWS))
    with BM25Index("index") as index:
        index.add(demo_passages())


def command(*more: str, model: str = "steady", out: str = "out.jsonl") -> list[str]:
    critic = ["--critic", f"tests.training.teacher:{model}", "--index", "index"]
    return ["train", "generator-data", "--data", "rows.jsonl", "--out", out, *critic, *more]


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_from_files_to_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command("--top-k", "2", "--estimate")) == 0
    settings, cost = capsys.readouterr().out.splitlines()
    assert json.loads(settings)["top_k"] == 2
    assert cost == (
        "23 rows to make: from 46 labels, if none needs retrieval, to 391, if each sentence does"
    )
    assert not Path("out.jsonl.run").exists()
    assert main(command("--top-k", "2")) == 0
    _, _, *report, where = capsys.readouterr().out.splitlines()
    printed = json.loads("\n".join(report))
    assert printed["written"] == 23
    assert sum(printed["labels"]["utility"].values()) == 23
    assert where == (
        "the rows are in out.jsonl, what was decided about each in out.jsonl.run/decisions.jsonl"
    )
    rows = read_generator_rows(Path("out.jsonl"))
    assert [row.id for row in rows] == [row.id for row in ROWS]
    assert not any(order_faults(row.output) for row in rows)
    assert main(command("--top-k", "2", "--estimate")) == 0
    assert "0 rows to make: from 0 labels" in capsys.readouterr().out


def test_a_checkpoint_and_a_chroma_index(capsys: pytest.CaptureFixture[str]) -> None:
    critic = opinionated()
    critic.model.save_pretrained("critic")
    critic.tokenizer.save_pretrained("critic")
    with ChromaIndex("chroma", WordHash()) as index:
        index.add(list(demo_passages())[:60])
    options = ["--critic", "critic", "--index", "chroma", "--top-k", "2", "--device", "cpu"]
    assert main(command(*options, "--embeddings", "tests.search.stand_ins:WordHash")) == 0
    printed = json.loads("\n".join(capsys.readouterr().out.splitlines()[2:-1]))
    assert printed["written"] == 23
    assert printed["read"] > 0
    assert lines("out.jsonl.run/decisions.jsonl")[0]["retrieve"]["probability"] > 0
    assert main(command("--index", "chroma", out="other.jsonl")) == 2
    assert "was indexed with" in capsys.readouterr().err


def test_a_critic_that_was_trained_again_is_another(capsys: pytest.CaptureFixture[str]) -> None:
    critic = opinionated()
    critic.tokenizer.save_pretrained("critic")
    critic.model.save_pretrained("critic", max_shard_size="100KB")
    assert not Path("critic/model.safetensors").exists(), "it is in shards"
    options = ["--critic", "critic", "--top-k", "2", "--device", "cpu"]
    assert main(command(*options)) == 0
    made = Path("out.jsonl").read_bytes()
    for _ in range(2):
        assert main(command(*options)) == 0, "the same critic goes on"
    critic.model.lm_head.weight.data += 1.0
    critic.model.save_pretrained("critic", max_shard_size="100KB")
    for estimate in [], ["--estimate"]:
        assert main(command(*options, *estimate)) == 2
        assert "other settings (critic)" in capsys.readouterr().err
    assert Path("out.jsonl").read_bytes() == made


def test_an_index_with_other_passages_is_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command("--top-k", "2")) == 0
    assert main(command("--top-k", "2")) == 0
    with BM25Index("index") as index:
        gone = min(index.ids())
        index.delete([gone])
        index.add([Document("As many as before, and another.")])
    assert main(command("--top-k", "2")) == 2
    assert "other settings (index)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--critic", "no/such/folder"], "no/such/folder"),
        (["--critic", "nowhere:quick"], "no importable module:attribute"),
        (["--index", "nowhere"], "holds no index"),
        (["--data", "missing.jsonl"], "cannot read"),
        (["--out", "rows.jsonl"], "is the data"),
        (["--out", "index"], "index is a folder"),
        (["--out", "mine.txt"], "mine.txt is not of this command's making"),
        (["--critic", "index"], "index holds no weights"),
        (["--embeddings", "nowhere:x"], "nowhere:x"),
        (["--critic", "a/folder", "--engine", "vllm"], "selfcorrect-rag[vllm]"),
        (["--critic", "a/folder", "--engine-option", "max_model_len=9"], "is for --engine vllm"),
        (["--engine", "vllm"], "is for a critic"),
    ],
)
def test_what_a_user_can_mend_is_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    message: str,
) -> None:
    for name in ("langchain", "langchain.chat_models", "vllm"):
        monkeypatch.setitem(sys.modules, name, None)
    Path("mine.txt").write_text("mine")
    assert main(command(*options)) == 2
    assert_said_in_one_line(capsys, message)


def test_what_is_worth_repeating_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Teacher._result

    def broken(self: Teacher, messages: Any) -> Any:
        if ROWS[0].instruction in str(messages[0].content):
            raise ConnectionError("no route")
        return result(self, messages)

    with monkeypatch.context() as patch:
        patch.setattr(Teacher, "_result", broken)
        patch.setattr("selfcorrect_rag.training.labelling.MAX_TRIES", 1)
        assert main(command()) == 1
    printed = capsys.readouterr().out
    assert '"failed": 1' in printed
    assert printed.endswith("and why: out.jsonl.run/failures.jsonl\n")
    assert main(command()) == 0


def test_the_page_runs() -> None:
    critic = opinionated()
    critic.model.save_pretrained("critic")
    critic.tokenizer.save_pretrained("critic")
    rows = Path("rows.jsonl").read_text().splitlines(keepends=True)
    Path("rows.jsonl").write_text("".join(rows[:6]))
    Path("articles").mkdir()
    for number, passage in enumerate(list(demo_passages())[:12]):
        Path(f"articles/{number}.txt").write_text(
            f"{passage.metadata['title']}\n\n{passage.page_content}", encoding="utf-8"
        )
    for line in "".join(SHELL.findall(PAGE)).splitlines():
        words = shlex.split(line.replace("runs/critic/critic", "critic"))
        if words[0] == "selfcorrect-rag":
            assert main(words[1:]) == 0, line
    names: dict[str, Any] = {}
    [block] = BLOCK.findall(PAGE)
    exec(compile(block.replace("runs/critic/critic", "critic"), "generator-data.md", "exec"), names)
    assert names["report"].written == 6
    assert Path("made.jsonl").read_bytes() == Path("generator.jsonl").read_bytes()
