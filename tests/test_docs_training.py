"""The Python of the pages on training runs as written, and their commands have such options."""

import json
import re
import shlex
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.search import Index
from selfcorrect_rag.training import ENTRYPOINTS
from tests.conftest import byte_level_tokenizer, random_model
from tests.snippets import BLOCK, ROOT
from tests.training.toys import label, write

PAGES = {
    name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    for name in ("critic", "generator-data", "generator", "instruct-rag-training")
}


@pytest.mark.slow
def test_the_pages_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = byte_level_tokenizer()
    for folder in ("runs/critic/critic", "runs/generator/generator"):
        random_model(len(words), 500).save_pretrained(folder)
        words.save_pretrained(folder)
    with Index("passages") as index:
        index.add([Document("Emma is a novel by Jane Austen.", metadata={"title": "Emma"})])
    documents = [{"title": "Emma", "text": "Emma is a novel by Jane Austen."}]
    row = {"instruction": "Who wrote Emma?", "output": "Jane Austen.", "question": "Who?"}
    write(tmp_path / "rows.jsonl", {**row, "answers": ["Jane Austen"], "documents": documents})
    given = {
        "chat_model": RunnableLambda(lambda prompt: AIMessage(label(prompt))),
        "llm": RunnableLambda(lambda prompt: AIMessage("It was Jane Austen.")),
        "retriever": lambda query: [Document("Emma is a novel by Jane Austen.")],
    }
    for name, page in PAGES.items():
        names = dict(given)
        for block in BLOCK.findall(page):
            exec(compile(block, f"{name}.md", "exec"), names)
    assert json.loads(Path("made.jsonl").read_text())["instruction"] == "Who wrote Emma?"


def test_commands_have_such_options() -> None:
    commands = re.findall(r"train ([\w-]+) (--set .*)$", "\n".join(PAGES.values()), re.MULTILINE)
    assert len(commands) >= 7
    for name, sets in commands:
        items = [item for item in shlex.split(sets) if item != "--set"]
        options = ENTRYPOINTS[name].options
        options(**{k: v for k, v in (item.split("=", 1) for item in items) if k != "trainer"})
