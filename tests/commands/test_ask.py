"""`selfcorrect-rag ask` and `demo`, on the reader and a real Chroma index."""

import gc
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.cli import main
from selfcorrect_rag.commands.ask import _uncollected
from selfcorrect_rag.render.reasons import score_sum
from selfcorrect_rag.settings import SelfRAGSettings
from tests.prompted_runs import hard, opinion
from tests.providers import LOGPROBS, REFUSES, Provider

QUESTION = "Who discovered penicillin?"
NOVEL = "Who wrote Middlemarch?"
"""What the chat models of these tests know."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run, so that the demo index is made once."""
    return tmp_path_factory.mktemp("ask")


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def ask(
    capsys: pytest.CaptureFixture[str], *options: str, question: str = QUESTION
) -> dict[str, Any]:
    assert main(["ask", question, "--json", *options]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_a_question_without_an_index_says_whose_documents_are_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = "no index at .selfcorrect/index: the demo's documents are read"
    assert main(["ask", QUESTION]) == 0
    assert said in capsys.readouterr().err
    (tmp_path / "note.md").write_text("The mill was built in 1815.", encoding="utf-8")
    index = ("--index", str(tmp_path / "index"))
    assert main(["index", str(tmp_path), *index]) == 0
    assert main(["ask", "When was the mill built?", *index]) == 0
    assert "no index" not in capsys.readouterr().err


def test_memory_is_collected_again_once_all_is_loaded() -> None:
    seen = []

    def load() -> None:
        with _uncollected():
            seen.append(gc.isenabled())
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        load()
    assert (seen, gc.isenabled()) == ([False], True)


def test_an_answer_comes_with_all_that_led_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    result = ask(capsys)
    assert result["answer"] == "Alexander Fleming"
    assert result["retrieval"]["probability"] > result["retrieval"]["threshold"]
    assert len(result["passages"]) == len(result["candidates"]) == 5
    cited = result["passages"][result["citations"][0]["passage"]]
    assert "penicillin" in cited["text"]


def test_the_same_for_people_names_scores_and_citations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", QUESTION]) == 0
    shown = capsys.readouterr().out
    for part in (
        QUESTION,
        "P(retrieve)",
        "threshold 0.2",
        "ISREL",
        "ISSUP",
        "ISUSE",
        "[1]",
        "demo",
        "the reader: ",
    ):
        assert part in shown


def test_knobs_reach_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    result = ask(capsys, "--mode", "always", "--passages", "2", "--depth", "1")
    assert result["retrieval"]["probability"] is None
    assert len(result["candidates"]) == 2
    assert ask(capsys, "--mode", "never")["passages"] == []
    hard = ask(capsys, "--threshold", "none")["retrieval"]
    assert hard["threshold"] is None
    assert hard["retrieve"]


def test_what_a_question_costs_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    result = ask(capsys)
    assert {step: cost["model_calls"] for step, cost in result["costs"].items()} == {
        "rewrite_follow_up": 0,
        "decide_retrieval": 1,
        "retrieve": 0,
        "generate_and_critique": 1,
        "beam_select": 0,
        "write_answer": 0,
    }
    assert result["stopped"] is None
    assert main(["ask", QUESTION, "--explain-cost", "--max-model-calls", "1"]) == 0
    shown = capsys.readouterr().out
    assert "max_model_calls is 1: evidence was retrieved without asking" in shown
    lines = [line.split() for line in shown.splitlines()]
    (step,) = [line for line in lines if line[:1] == ["generate_and_critique"]]
    (whole,) = [line for line in lines if line[:2] == ["in", "all"]]
    assert step[1:4] == whole[2:5]
    assert step[1] == "1"
    assert main(["ask", QUESTION]) == 0
    assert "tokens read" not in capsys.readouterr().out


def test_the_sum_of_each_score_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    result = ask(capsys)
    assert main(["ask", QUESTION, "--explain-scores"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for candidate in result["candidates"]:
        assert score_sum(candidate) in shown
    assert "ISUSE: whether the answer is useful" in shown


def test_the_commands_of_the_docs_on_cost(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "cost.md").read_text(encoding="utf-8")
    commands = re.findall(r"^selfcorrect-rag (.*)$", text, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        assert main(shlex.split(command)) == 0
    shown = capsys.readouterr().out
    assert re.search(r"generate_and_critique +1 +\d", shown)
    assert '"stopped": "max_model_calls"' in shown


def test_every_knob_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["ask", "--help"])
    shown = capsys.readouterr().out
    assert stop.value.code == 0
    for name in SelfRAGSettings.model_fields:
        assert f"--{name.replace('_', '-')}" in shown


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        (["--passages", "0"], "--passages"),
        (["--threshold", "1.5"], "--threshold"),
        (["--hard-constraints", "[Nonsense]"], "[Nonsense]"),
        (["--index", "nowhere"], "selfcorrect-rag index"),
        (["--model", "nowhere/at-all"], "nowhere/at-all"),
    ],
)
def test_mistakes_are_one_line_that_names_the_remedy(
    options: list[str], remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ask", QUESTION, *options]) == 2
    error = capsys.readouterr().err.strip()
    assert remedy in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("graph", "embeddings"),
    [
        *((graph, "bm25") for graph in ("self-rag", "crag", "self-crag", "instruct-rag")),
        ("self-rag", "minilm"),
        ("self-rag", None),
    ],
)
def test_an_index_without_passages_answers_nothing(
    graph: str, embeddings: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new one, one whose files are gone, or a folder that is no index at all."""
    index = tmp_path / "index"
    if embeddings:
        notes = tmp_path / "notes.txt"
        notes.write_text("Emma is a novel.")
        options = ["--index", str(index), "--embeddings", embeddings]
        assert main(["index", str(notes), *options]) == 0
        notes.unlink()
        main(["index", str(notes), "--index", str(index), "--prune"])
    else:
        index.mkdir()
    capsys.readouterr()
    assert main(["ask", QUESTION, "--graph", graph, "--index", str(index)]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    (line,) = shown.err.splitlines()
    assert str(index) in line
    assert line.endswith(f"selfcorrect-rag index PATH... --index {index}")


def test_an_empty_question_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ask", "  "]) == 2
    assert "question is empty" in capsys.readouterr().err


@pytest.mark.parametrize("embeddings", ["minilm", "bm25"])
def test_the_users_own_files_can_be_asked(
    embeddings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "harbour.md").write_text(
        "# Tarnholm lighthouse\n\nThe Tarnholm lighthouse was designed by Ingrid Falk in 1911.\n",
        encoding="utf-8",
    )
    index = str(tmp_path / "index")
    assert main(["index", str(notes), "--index", index, "--embeddings", embeddings]) == 0
    capsys.readouterr()
    arguments = ["ask", "Who designed the Tarnholm lighthouse?", "--index", index, "--json"]
    assert main(arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert "Ingrid Falk" in result["passages"][0]["text"]
    assert result["answer"] == "Ingrid Falk"
    assert result["passages"][0]["metadata"]["source"].endswith("harbour.md")


def test_the_nano_generator_has_reflection_tokens_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = ask(capsys, "--engine", "transformers", question=NOVEL)
    assert "George Eliot" in result["answer"]
    control = [
        piece["text"] for piece in result["candidates"][0]["pieces"] if piece["kind"] != "text"
    ]
    assert control[0] in ("[Relevant]", "[Irrelevant]")


@pytest.mark.parametrize("options", [[], ["--engine", "transformers"]])
def test_the_demo_answers_offline_in_one_command(folder: Path, options: list[str]) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "selfcorrect_rag.cli", "demo", "--every", "70", *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "no retrieval: P(retrieve)" in run.stdout, "one question needs no evidence"
    assert "retrieve: P(retrieve)" in run.stdout
    assert "no passage was judged relevant" in run.stdout, "one has only misleading passages"
    assert "[1]" in run.stdout
    said = "the nano generator on transformers: " if options else "the reader: "
    assert said in run.stdout


soft_model = Provider(answer=opinion, **LOGPROBS)
hard_model = Provider(answer=hard(opinion), **REFUSES)


@pytest.mark.parametrize("name", ["soft_model", "hard_model"])
def test_a_chat_model_answers_and_the_output_says_what_it_is(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--engine", "chat", "--model", f"tests.commands.test_ask:{name}"]
    result = ask(capsys, *options, question=NOVEL)
    assert result["answer"] == "George Eliot."
    prompted = "the model has no reflection tokens: prompts asked for what they say"
    assert result["notes"][0] == prompted
    assert result["usage"]["model_calls"] <= 6 + 4, "finding out what it can do comes on top"
    assert main(["ask", NOVEL, *options]) == 0
    shown = capsys.readouterr().out
    is_hard = name == "hard_model"
    assert ("critiques are hard labels" in shown) == is_hard
    assert ("1.00 h" in shown) == is_hard
    options += ["--evaluator", f"tests.commands.test_ask:{name}", "--web", "none"]
    for graph in ("crag", "self-crag"):
        assert main(["ask", NOVEL, "--graph", graph, *options]) == 0
        shown = capsys.readouterr().out
        assert "George Eliot" in shown
        assert ("the evaluator's provider gave no prob" in shown) == is_hard
