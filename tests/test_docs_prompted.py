"""What the page on chat models shows works as written."""

import json
import shlex
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda

from selfcorrect_rag.cli import main
from selfcorrect_rag.models import PromptedReflectionLLM
from selfcorrect_rag.models.chat.classification import MODES
from selfcorrect_rag.search import RetrieverWebSearch
from selfcorrect_rag.serving.parts import Parts
from tests.prompted_runs import NOVEL, SEQUEL, TOWN, generate, opinion, reader
from tests.providers import LOGPROBS, VLLM, Provider
from tests.test_docs import BLOCK, ROOT
from tests.test_docs_critic import SHELL

PAGE = (ROOT / "docs" / "prompted.md").read_text(encoding="utf-8")
gpt = Provider(answer=opinion, **LOGPROBS)
NAME = "tests.test_docs_prompted:gpt"


def test_the_python_runs() -> None:
    block, offline = BLOCK.findall(PAGE)
    passage = Document("Middlemarch is by George Eliot.", metadata={"title": "Middlemarch"})
    names: dict[str, object] = {"chat_model": gpt, "retriever": lambda query: [passage]}
    exec(compile(block, "prompted.md", "exec"), names)
    assert names["result"]["answer"] == "George Eliot."  # type: ignore[index]
    exec(compile(offline, "prompted.md", "exec"), names)
    assert isinstance(names["llm"], PromptedReflectionLLM)


def test_the_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    found = RunnableLambda(lambda query: [Document("It is by George Eliot.")])
    monkeypatch.setattr(Parts, "retriever", found)
    web = RetrieverWebSearch(found, "a list")
    monkeypatch.setattr("selfcorrect_rag.serving.parts.demo_web", lambda: web)
    row = {"question": "Who?", "positives": ["He did."], "negatives": ["Nobody."]}
    Path("graded.jsonl").write_text(json.dumps(row))
    commands = [shlex.split(line) for line in "".join(SHELL.findall(PAGE)).splitlines()]
    run = [command for command in commands if command[0] == "selfcorrect-rag"]
    assert len(run) == 3
    for command in run:
        assert "openai:gpt-4o-mini" in command
        options = [NAME if word == "openai:gpt-4o-mini" else word for word in command[1:]]
        assert main(options) == 0, command
    assert capsys.readouterr().out.count("George Eliot") >= 2


def test_the_modes_and_the_calls_of_the_page() -> None:
    rows = [line.split("|")[1].strip(" `") for line in PAGE.splitlines() if line.startswith("| `")]
    assert tuple(rows) == MODES
    assert "six calls by default, four with `candidates=1`" in PAGE
    decision = 1
    for candidates, calls in ((2, 6), (1, 4)):
        llm = PromptedReflectionLLM(Provider(answer=reader, **VLLM), candidates=candidates)
        segments = generate(llm, TOWN, NOVEL, SEQUEL)
        assert decision + sum(segment["requests"] for segment in segments) == calls
