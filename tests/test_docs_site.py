"""What the tutorial and the how-to pages show works as written."""

import io
import re
import shlex
import subprocess
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

import selfcorrect_rag
from selfcorrect_rag.cli.main import main
from tests.agents.scripted import ScriptedAgentModel, reflecting
from tests.crag_runs import PagesWebSearch, WordEvaluator, document
from tests.test_docs import BLOCK, ROOT
from tests.test_examples import small_demo  # noqa: F401

GOLD = document("Gold: Middlemarch is by George Eliot.", "Middlemarch")


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def run(text: str, **given: Any) -> dict[str, Any]:
    """The names that a page's Python makes, block after block."""
    names: dict[str, Any] = {
        "llm": reflecting(),
        "chat_model": FakeListChatModel(responses=["George Eliot [1]."]),
        "retriever": lambda query: [GOLD],
        "evaluator": WordEvaluator(),
        "web": PagesWebSearch(),
        **given,
    }
    for block in BLOCK.findall(text):
        exec(compile(block, "page.md", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


TESTED_ELSEWHERE = {"demo", "studio", "ui"}
"""Commands that take a minute or do not end; their own tests run them."""


def shell(text: str) -> None:
    """Run a page's commands, those of this package in this process."""
    for line in "".join(re.findall(r"```bash\n(.*?)```", text, re.DOTALL)).splitlines():
        words = shlex.split(line)
        if words[0] != "selfcorrect-rag":
            if words[0] != "pip":
                subprocess.run(line, shell=True, check=True)
        elif words[1] not in TESTED_ELSEWHERE:
            *words, to = words if words[-2] == ">" else [*words, ">", ""]
            with ExitStack() as stack:
                if to:
                    stack.enter_context(redirect_stdout(stack.enter_context(open(to, "w"))))
                assert main(words[1:-1]) == 0, line


def test_home(capsys: pytest.CaptureFixture[str]) -> None:
    run(page("index"))
    cited, quote = capsys.readouterr().out.splitlines()
    assert cited == "Alexander Fleming [1]"
    assert "Fleming" in quote


@pytest.mark.slow
def test_tutorial(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = page("tutorial")
    (asked,) = re.findall(r"Ask `(.*?)`, then `(.*?)`", text)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(asked)))
    shell(text)
    said = capsys.readouterr().out
    assert "Priya Raman [1]" in said
    assert "The documents do not say." in said
    first, weighed = (float(score) for score in re.findall(r"([\d.]+)  Priya Raman\n", said))
    assert weighed > first + 0.5, "support counts double"
    assert "Tom" in said.rpartition("Priya Raman")[2], "the conversation's second answer"
    assert Path("compared/report.html").is_file()
    names = run(text)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "Priya Raman [1]"
    corrected, agent, *sources = shown[1 + len(names["result"]["candidates"]) :]
    assert f"It prints `{corrected}`" in text
    assert "Tom waters the plants" in agent
    assert "office.md" in sources[-1]
    assert "Priya Raman" in Path("run.html").read_text(encoding="utf-8")


def test_choose_a_graph() -> None:
    assert len(run(page("choose-a-graph"))["results"]) == 2


def test_your_model(monkeypatch: pytest.MonkeyPatch, checkpoint: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    text = page("your-model").replace("selfrag/selfrag_llama2_7b", str(checkpoint))
    names = run(
        text, chat_model=FakeListChatModel(responses=["yes", "yes", "George Eliot [1]."] * 9)
    )
    assert names["result"]["action"] in ("correct", "ambiguous", "incorrect")
    assert names["reflecting"].get_token_ids("Emma")


def test_your_documents() -> None:
    Path("notes").mkdir()
    Path("papers").mkdir()
    note = "Deployments happen every Tuesday, and Priya Raman approves them."
    Path("notes/staging.md").write_text(note, encoding="utf-8")
    text = page("your-documents")
    shell(text)
    names = run(text, embeddings=DeterministicFakeEmbedding(size=8))
    assert Path(".selfcorrect/index").is_dir()
    assert not names["report"].problems
    found = [names[key]["passages"][0].page_content for key in ("result", "from_store")]
    assert found == [note, "Middlemarch is by George Eliot."]
    titles = [names[key]["passages"][0].metadata for key in ("from_function", "from_input")]
    assert titles == [{"title": "Novels"}] * 2
    assert isinstance(names["from_input"]["passages"][0], Document)


def test_in_a_chat_agent(capsys: pytest.CaptureFixture[str]) -> None:
    def reply(messages: list[BaseMessage]) -> AIMessage:
        if isinstance(messages[-1], ToolMessage):
            return AIMessage("By George Eliot.")
        call = {"name": "library", "args": {"question": "Who wrote Middlemarch?"}, "id": "1"}
        return AIMessage("", tool_calls=[call])

    model = FakeListChatModel(responses=["George Eliot [1]."])
    seen = run(page("chat-agent"), llm=model, chat_model=ScriptedAgentModel(reply=reply))["seen"]
    assert [seen[0], seen[1], seen[-1]] == ["retrieved", "graded", "answered"]
    assert "By George Eliot." in capsys.readouterr().out


def test_for_assistants() -> None:
    embeddings = DeterministicFakeEmbedding(size=8)
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    result = run(text, embeddings=embeddings)["result"]
    assert result["action"] == "incorrect", "nothing is in its store"
    for name in re.findall(r"`(create_\w+)\(", text):
        assert hasattr(selfcorrect_rag, name)


def test_from_the_tutorials() -> None:
    model = FakeListChatModel(responses=["1: yes", "1: yes", "1: yes", "George Eliot [1]."] * 9)
    names = run(page("from-langgraph-tutorials"), chat_model=model)
    assert names["result"]["action"]
    assert names["answered"]["candidates"]
