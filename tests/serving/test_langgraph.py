"""The LangGraph server's graphs, and the command that starts it."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from selfcorrect_rag.cli import main
from selfcorrect_rag.commands.studio import CONFIG
from selfcorrect_rag.serving import langgraph_server
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
from tests.crag_runs import PagesWebSearch, WordEvaluator, document

ROOT = Path(__file__).parents[2]
GRAPHS = ["self_rag", "crag", "self_crag", "instruct_rag", "chat_agent"]


def test_the_clone_and_the_package_name_the_same_graphs() -> None:
    packaged = json.loads(CONFIG.read_text(encoding="utf-8"))["graphs"]
    cloned = json.loads((ROOT / "langgraph.json").read_text(encoding="utf-8"))["graphs"]
    assert list(packaged) == list(cloned) == GRAPHS
    assert packaged == cloned
    for name in GRAPHS:
        assert packaged[name]["path"] == f"{langgraph_server.__name__}:{name}"
        assert callable(getattr(langgraph_server, name))


def test_the_command_becomes_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langgraph_api")
    calls: list[Any] = []

    def execve(path: str, command: list[str], environment: dict[str, str]) -> None:
        calls.append((command, environment))
        raise SystemExit

    monkeypatch.setattr("os.execve", execve)
    given = ["--port", "99", "--no-browser", "--model", "m", "--allow-host", "rag.example"]
    with pytest.raises(SystemExit):
        main(["studio", *given, "--", "--tunnel"])
    ((command, environment),) = calls
    assert command[1:6] == ["-m", "langgraph_cli", "dev", "--config", str(CONFIG)]
    assert {"--no-reload", "--no-browser", "99"} <= set(command)
    assert command[-1] == "--tunnel"
    assert environment["LANGGRAPH_CLI_NO_ANALYTICS"] == "1"
    assert environment["SELFCORRECT_MODEL"] == "m"
    assert "rag.example" in environment["SELFCORRECT_ALLOWED_HOSTS"].split()


def test_without_the_server_the_command_names_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "langgraph_cli", None)
    assert main(["studio"]) == 2
    assert 'pip install "selfcorrect-rag[studio]"' in capsys.readouterr().err


SKETCHES = """
import asyncio, sys
from types import SimpleNamespace
from selfcorrect_rag.serving import langgraph_server
for name in {names}:
    graph = asyncio.run(getattr(langgraph_server, name)(SimpleNamespace(execution_runtime=None)))
    print(name, len(graph.get_context_jsonschema()["properties"]), len(graph.nodes))
assert not {{"torch", "transformers", "chromadb"}} & set(sys.modules)
"""


def test_schemas_open_nothing(tmp_path: Path) -> None:
    """Not even where no model can be opened."""
    run = subprocess.run(
        [sys.executable, "-c", SKETCHES.format(names=GRAPHS)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "SELFCORRECT_MODEL": "nowhere/none"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert [line.split()[0] for line in run.stdout.splitlines()] == GRAPHS
    assert not list(tmp_path.iterdir())


def test_a_chat_model_that_is_named_writes_and_rewrites(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SELFCORRECT_CHAT_MODEL", "tests.serving.test_langgraph:make_model")
    config = ServingConfig.from_environment()
    sketch = Parts(config, sketch=True)
    for name in ("crag", "instruct_rag", "self_rag"):
        assert "rewrite_follow_up" in sketch.graph(name).nodes
    real = Parts(config)
    assert real.rationale_llm is real.agent_model is real.chat_model
    real.retriever = lambda query: [document("Noise.")]
    real.evaluator, real.web = WordEvaluator(), PagesWebSearch()
    monkeypatch.setattr(Parts, "llm", None)
    result = real.graph("crag").invoke({"question": "Who wrote Emma?"})
    assert (result["answer"], result["web_query"]) == ("Jane Austen", "Jane Austen")


def make_model() -> Any:
    from langchain_core.language_models.fake_chat_models import FakeListChatModel

    return FakeListChatModel(responses=["Jane Austen"])


def test_models_are_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def load(name: str) -> Any:
        opened.append(name)
        return SimpleNamespace()

    monkeypatch.setattr("selfcorrect_rag.serving.parts.as_evaluator", load)
    parts = Parts(ServingConfig(evaluator="grader"))
    assert parts.evaluator is parts.evaluator
    assert opened == ["grader"]


@pytest.fixture
def _nothing_opened() -> Iterator[None]:
    """The server's graphs and parts are kept for good: not those of a test."""
    for kept in (langgraph_server._made, langgraph_server._parts):
        kept.cache_clear()
    yield
    for kept in (langgraph_server._made, langgraph_server._parts):
        kept.cache_clear()


@pytest.mark.usefixtures("_nothing_opened")
async def test_runs_that_begin_together_open_each_model_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[str] = []

    class Slow(Parts):
        @cached_property
        def llm(self) -> Any:
            time.sleep(0.05)
            opened.append("the generator")
            return SimpleNamespace()

        def graph(self, name: str, settings: Any = None, **kept: Any) -> Any:
            return SimpleNamespace(name=name, llm=self.llm)

    monkeypatch.setattr(langgraph_server, "Parts", Slow)
    monkeypatch.setattr(langgraph_server, "freeze_gc", lambda: None)
    run: Any = SimpleNamespace(execution_runtime=object())
    begun = [langgraph_server.self_rag, langgraph_server.crag, langgraph_server.self_rag]
    graphs: list[Any] = await asyncio.gather(*(factory(run) for factory in begun))
    assert opened == ["the generator"]
    assert graphs[0] is graphs[2]
    assert graphs[0].llm is graphs[1].llm
