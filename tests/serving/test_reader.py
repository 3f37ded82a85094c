"""The reader as the embedded default: one set of weights, own documents, refusals."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from selfcorrect_rag import SelfRAGSettings
from selfcorrect_rag.cli import main
from selfcorrect_rag.demo import load_chat_model
from selfcorrect_rag.follow_up import standalone_question
from selfcorrect_rag.reader import ReaderEvaluator, ReaderLLM
from selfcorrect_rag.reader.weights import SHIPPED
from selfcorrect_rag.search import BM25Index
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
from selfcorrect_rag.settings import GRAPHS
from tests.crag_runs import WordEvaluator, document
from tests.reader.scripted_reader import ScriptedReader

STAGING = "The staging server runs on port 8443. Deployments happen every Tuesday at 10:00."
SCRIPTED: Any = ScriptedReader({"8443": 0.9})
CHAT: Any = FakeListChatModel(responses=["By the chat model?"])
OFFICE = "Tom waters the plants in the office on Mondays."
PORT = "Which port does the staging server run on?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two notes and their index, as `selfcorrect-rag index` makes it."""
    root = tmp_path_factory.mktemp("own")
    notes = root / "notes"
    notes.mkdir()
    (notes / "staging.md").write_text(f"# Staging\n\n{STAGING}\n", encoding="utf-8")
    (notes / "office.md").write_text(f"# Office\n\n{OFFICE}\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert main(["index", "notes"]) == 0
    return root


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def ask(capsys: pytest.CaptureFixture[str], question: str, *options: str) -> Any:
    assert main(["ask", question, "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_weights_are_in_memory_once() -> None:
    parts = Parts(ServingConfig())
    assert isinstance(parts.llm, ReaderLLM)
    assert isinstance(parts.evaluator, ReaderEvaluator)
    assert parts.llm.reader is parts.reader is parts.evaluator.reader
    assert parts.rationale_llm is parts.llm


def test_it_grades_for_every_engine() -> None:
    for config in (ServingConfig(engine="transformers"), ServingConfig(model="m")):
        assert isinstance(Parts(config).evaluator, ReaderEvaluator)


def test_another_trained_reader_answers(tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "own")
    parts = Parts(ServingConfig(engine="reader", model=str(tmp_path / "own"), answer_above=0.8))
    assert isinstance(parts.llm, ReaderLLM)
    assert isinstance(parts.evaluator, ReaderEvaluator)
    assert parts.llm.reader is not parts.reader
    assert parts.evaluator.reader is parts.reader
    assert (parts.llm.answer_above, parts.llm.show_guess) == (0.8, False)
    assert parts.answers == f"the reader in {tmp_path / 'own'}"


@pytest.mark.parametrize(
    ("given", "answers"),
    [
        ({}, "the reader"),
        ({"engine": "transformers"}, "the nano generator on transformers"),
        ({"model": "selfrag/selfrag_llama2_7b"}, "selfrag_llama2_7b on transformers"),
        ({"engine": "server"}, "the model on server"),
    ],
)
def test_what_answers_has_a_name(given: dict[str, Any], answers: str) -> None:
    assert Parts(ServingConfig(**given)).answers == answers


@pytest.mark.parametrize("graph", GRAPHS)
def test_a_follow_up_question_stands_alone(graph: str) -> None:
    with Parts(ServingConfig()) as parts:
        parts.reader, parts.evaluator = SCRIPTED, WordEvaluator()
        chat = parts.graph(graph, checkpointer=InMemorySaver())
        thread: Any = {"configurable": {"thread_id": "1"}}
        first = chat.invoke({"messages": [HumanMessage(PORT)]}, thread)
        assert first["question"] == PORT
        second = chat.invoke({"messages": [HumanMessage("Where is it?")]}, thread)
    assert second["question"] == "Where is the staging server?"
    assert second["original_question"] == "Where is it?"
    assert second["passages"][0].metadata["source"].endswith("staging.md")


def test_the_rule_is_the_readers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfcorrect_rag.serving.parts.find_language_model", lambda name: CHAT)
    for given, rule, node in (
        ({}, standalone_question, True),
        ({"chat_model": "acme:chat"}, standalone_question, True),
        ({"engine": "transformers"}, None, False),
        ({"model": "m"}, None, False),
    ):
        parts = Parts(ServingConfig(**given), sketch=True)
        assert parts.follow_up_rule is rule
        for graph in GRAPHS:
            assert ("rewrite_follow_up" in parts.graph(graph).nodes) is node
        if "chat_model" not in given:
            assert parts.agent_model == load_chat_model(rule)
    parts = Parts(ServingConfig(chat_model="acme:chat"))
    parts.retriever, parts.evaluator = lambda query: [document(STAGING)], WordEvaluator()
    parts.reader = SCRIPTED
    talk = [HumanMessage(PORT), AIMessage("8443"), HumanMessage("Where is it?")]
    for graph in GRAPHS:
        result = parts.graph(graph).invoke({"messages": talk})
        assert result["question"] == "By the chat model?"


@pytest.mark.parametrize("graph", ["self_rag", "self_crag"])
@pytest.mark.parametrize(
    ("given", "settings", "mode"),
    [
        ({"index": Path("index")}, None, "always"),
        ({"index": Path("index")}, SelfRAGSettings(mode="adaptive"), "adaptive"),
        ({"index": Path("index")}, SelfRAGSettings(passages=1), "always"),
        ({"index": Path("index"), "engine": "transformers"}, None, "adaptive"),
        ({}, None, "adaptive"),
    ],
)
def test_it_always_retrieves_from_an_index_of_ones_own(
    graph: str,
    given: dict[str, Any],
    settings: SelfRAGSettings | None,
    mode: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # no index here: without --index it is the demo corpus
    with BM25Index("index") as index:
        index.add([document(STAGING)])
    monkeypatch.setattr("selfcorrect_rag.serving.parts.demo_index", lambda: BM25Index("index"))
    parts = Parts(ServingConfig(**given, web="none"))
    parts.evaluator = WordEvaluator()
    made = parts.graph(graph, settings)
    assert made.invoke({"question": PORT})["retrieval"]["mode"] == mode
    other = made.invoke({"question": PORT}, context={"mode": "never"})
    assert other["retrieval"]["mode"] == "never"


def test_a_persons_own_notes_are_answered_and_cited(capsys: pytest.CaptureFixture[str]) -> None:
    result = ask(capsys, PORT)
    assert "8443" in result["answer"]
    (cited,) = result["citations"]
    assert cited["source"].endswith("staging.md")
    assert main(["ask", PORT]) == 0
    shown = capsys.readouterr().out
    assert "8443" in shown
    assert "  the reader: " in shown


@pytest.mark.parametrize("graph", ["self-rag", "self-crag"])
def test_above_1_everything_is_refused(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = ask(capsys, PORT, "--answer-above", "1", "--graph", graph)
    assert result["answer"] == "The documents do not say."
    assert not result["citations"]
    guess = ask(capsys, PORT, "--answer-above", "1", "--show-guess", "--graph", graph)
    assert guess["answer"].startswith("The documents do not say (best guess, with a probability of")
    assert "8443" in guess["answer"]
    assert not guess["citations"]


def test_a_folder_without_a_reader_is_named(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path_factory.mktemp("empty")
    for model, said in ((str(empty), f"{empty} holds no reader"), ("nowhere", "no folder nowhere")):
        assert main(["ask", PORT, "--engine", "reader", "--model", model]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert len(error.splitlines()) == 1
