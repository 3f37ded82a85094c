"""What the page on chat models shows works as written."""

import ast
import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from nano_training.models import critic_path

from selfcorrect_rag.cli import main
from selfcorrect_rag.models import PromptedReflectionLLM
from selfcorrect_rag.models.classification import MODES
from selfcorrect_rag.search import RetrieverWebSearch
from selfcorrect_rag.serving.parts import Parts
from tests import decision_models
from tests.crag_runs import WordEvaluator
from tests.prompted_runs import NOVEL, SEQUEL, TOWN, generate, opinion, reader
from tests.providers import LOGPROBS, VLLM, Provider
from tests.test_docs import BLOCK, ROOT
from tests.test_docs_critic import SHELL

PAGE = (ROOT / "docs" / "prompted.md").read_text(encoding="utf-8")
gpt = Provider(answer=opinion, **LOGPROBS)
decisions, openai = decision_models.decisions, decision_models.openai
NAME = "tests.test_docs_prompted:gpt"


@pytest.mark.filterwarnings("ignore:The class `OpenAIDecisions` is in beta")
@pytest.mark.usefixtures("decisions")
def test_the_python_runs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    openai: tuple[object, list[Any]],
) -> None:
    block, asking, answering, offline = BLOCK.findall(PAGE)
    passage = Document("Middlemarch is by George Eliot.", metadata={"title": "Middlemarch"})
    names: dict[str, object] = {"chat_model": gpt, "retriever": lambda query: [passage]}
    exec(compile(block, "prompted.md", "exec"), names)
    assert names["result"]["answer"] == "George Eliot."  # type: ignore[index]
    exec(compile(asking, "prompted.md", "exec"), names)
    question = {"question": "Who wrote Middlemarch?"}
    result, bodies = names["self_rag"].invoke(question), openai[1]  # type: ignore[attr-defined]
    assert result["answer"] == "George Eliot."
    assert result["candidates"][0]["critique"]["ISREL"] == pytest.approx(0.75)
    assert {one["type"] for _, body in bodies for one in body["questions"]} == {"choice"}
    graded = names["crag"].invoke(question)["grades"]  # type: ignore[attr-defined]
    assert graded[0]["score"] == -0.5
    monkeypatch.chdir(tmp_path)
    Path("runs/critic").mkdir(parents=True)
    Path("runs/critic/critic").symlink_to(critic_path(), target_is_directory=True)
    names["evaluator"] = WordEvaluator()
    capsys.readouterr()
    exec(compile(answering, "prompted.md", "exec"), names)
    support, relevant = capsys.readouterr().out.splitlines()
    assert math.fsum(ast.literal_eval(support).values()) == pytest.approx(1.0, abs=1e-5)
    assert float(relevant) == 0.0, "it has none of the evaluator's words"
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
