"""`selfcorrect-rag ask --graph`, on BM25 indexes, the reader and hand-made evaluators."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from selfcorrect_rag.cli import main
from selfcorrect_rag.commands.ask import SETTINGS
from selfcorrect_rag.search import BM25Index, TavilyWebSearch
from selfcorrect_rag.serving.config import ServingConfig
from selfcorrect_rag.serving.parts import Parts
from tests.crag_runs import PagesWebSearch, WordEvaluator, document
from tests.tiny_evaluators import bert, bert_tokenizer

PLACES = {"Tarnholm": "gold", "Vinter": "vague", "Grauhafen": "noise"}
"""Towns in the user's files, each with the word that says how its passage is graded."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an index of its own, and one that plays the web."""
    root = tmp_path_factory.mktemp("ask")
    with BM25Index(root / "index") as index:
        index.add([document(f"{town} is a {word} town.", town) for town, word in PLACES.items()])
    with BM25Index(root / "pages") as pages:
        pages.add([document("Grauhafen and Vinter have gold, says a page.", "A page")])
    return root


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("TAVILY_API_KEY", raising=False)
    monkeypatch.setattr("selfcorrect_rag.reader.ReaderEvaluator", lambda reader: WordEvaluator())


def ask(town: str, *options: str, graph: str = "crag") -> list[str]:
    return ["ask", f"What is {town}?", "--graph", graph, "--index", "index", *options]


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("graph", ["crag", "self-crag"])
@pytest.mark.parametrize(
    ("town", "action", "pages"),
    [("Tarnholm", "correct", 0), ("Grauhafen", "incorrect", 1), ("Vinter", "ambiguous", 1)],
)
def test_each_action_from_the_command_line(
    graph: str, town: str, action: str, pages: int, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--web", "pages", "--passages", "1"]
    result = answered(capsys, *ask(town, *options, graph=graph))
    assert result["action"] == action
    assert result["thresholds"] == {"upper": 0.5, "lower": -0.5}
    assert result["passages"][0]["metadata"]["title"] == town
    assert len(result["web_results"]) == pages
    assert result["web_source"] == ("pages in place of the web" if pages else "")
    titles = [piece["metadata"]["title"] for piece in result["knowledge"]]
    assert titles == [town] * (action != "incorrect") + ["A page"] * pages
    assert ("candidates" in result) is (graph == "self-crag")


def test_the_same_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ask("Vinter", "--web", "pages", "--passages", "1")) == 0
    shown = capsys.readouterr().out
    for part in (
        "Ambiguous: best score 0.000; Correct above 0.5, Incorrect below -0.5",
        "passages from index:",
        "searched pages in place of the web for: Vinter",
        "W1  A page, notes",
        "knowledge:",
        ": nothing is cited",
    ):
        assert part in shown


@pytest.mark.parametrize("graph", SETTINGS)
def test_a_question_in_bytes_that_are_no_text(
    graph: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        answered(capsys, *ask("Vinter\udcff", graph=graph))["question"] == "What is Vinter\ufffd?"
    )


def test_knobs_of_the_chosen_graph_reach_it(capsys: pytest.CaptureFixture[str]) -> None:
    knobs = ["--upper", "-0.2", "--lower", "-0.3", "--decomposition", "passage", "--strips", "1"]
    result = answered(capsys, *ask("Vinter", *knobs, "--web", "none"))
    assert result["thresholds"] == {"upper": -0.2, "lower": -0.3}
    assert result["action"] == "correct"
    raw = answered(capsys, *ask("Vinter", "--no-rewrite", "--web", "pages"))
    assert raw["web_query"] == "What is Vinter?"


def test_without_a_web_the_run_goes_on_and_says_how_to_have_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = answered(capsys, *ask("Grauhafen", "--passages", "1"))
    assert result["web_results"] == []
    assert "--web tavily" in result["web_failure"]
    assert result["knowledge"][0]["metadata"]["title"] == "Grauhafen"


def test_the_demo_corpus_has_a_web_of_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    web = PagesWebSearch()
    monkeypatch.setattr("selfcorrect_rag.serving.parts.demo_web", lambda: web)
    monkeypatch.setattr("selfcorrect_rag.serving.parts.demo_index", lambda: BM25Index("index"))
    question = ["ask", "What is Grauhafen?", "--graph", "crag", "--passages", "1"]
    assert answered(capsys, *question)["web_source"] == "pages"
    assert answered(capsys, *question, "--web", "none")["web_failure"]
    assert len(web.queries) == 1


def test_tavily_by_the_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-unused")
    assert isinstance(Parts(ServingConfig(web="tavily")).web, TavilyWebSearch)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--upper", "0.5"], "--upper is for --graph crag or self-crag"),
        (["--evaluator", "x"], "--evaluator is for --graph crag or self-crag"),
        (["--web", "none"], "--web is for --graph crag or self-crag"),
        (["--approve"], "--approve is for --graph crag or self-crag"),
        (["--graph", "crag", "--depth", "2"], "--depth is for --graph self-rag or self-crag"),
        (["--graph", "crag", "--contexts", "all"], "--contexts is for --graph self-crag"),
        (["--graph", "crag", "--upper", "2"], "--upper: Input should be less than"),
        (["--graph", "crag", "--upper", "-0.9"], "--upper, --lower: "),
        (["--graph", "crag", "--web", "tavily"], "TAVILY_API_KEY"),
        (["--graph", "crag", "--web", "nowhere"], "selfcorrect-rag index"),
        (["--graph", "crag", "--approve", "--web", "pages"], "--approve asks in a terminal"),
        (["--graph", "crag", "--evaluator", "index"], "cannot load a model from index"),
    ],
)
def test_mistakes_are_one_line_that_names_the_remedy(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ask", "What is Vinter?", "--index", "index", *options]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("selfcorrect-rag: ")
    assert message in error


@pytest.mark.parametrize("command", [["ask", "Who?"], ["demo"]])
@pytest.mark.parametrize(
    "options", [["--tensor-parallel", "2"], ["--engine", "vllm", "--engine-option", "eager"]]
)
def test_options_of_the_engine_are_checked_before_an_index_is_made(
    command: list[str],
    options: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*command, *options]) == 2
    assert "--engine" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_help_says_which_graphs_an_option_is_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    with pytest.raises(SystemExit):
        main(["ask", "--help"])
    shown = capsys.readouterr().out
    for settings in SETTINGS.values():
        for name in settings.model_fields.keys() - {"approve_search"}:
            assert f"  --{name.replace('_', '-')}" in shown
    groups = {group.splitlines()[0]: group for group in shown.split("\n\n")}
    assert "--beam-width" in groups["knobs of self-rag and self-crag:"]
    assert "--upper" in groups["knobs of crag and self-crag:"]
    assert "--approve" in groups["knobs of crag and self-crag:"]
    assert "--contexts" in groups["knobs of self-crag:"]
    assert "--seed" in groups["knobs of instruct-rag:"]
    shared = groups["knobs of self-rag, crag, self-crag and instruct-rag:"]
    assert "Default: 5. crag and self-crag: Documents retrieved" in shared


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(isatty=lambda: True)
    streams = SimpleNamespace(stdin=stream, stdout=stream)
    monkeypatch.setattr("selfcorrect_rag.commands.ask.sys", streams)


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize(
    ("typed", "query"),
    [("yes", "Grauhafen"), ("Grauhafen harbour", "Grauhafen harbour"), ("no", None), ("", None)],
)
def test_a_person_approves_a_search(
    typed: str,
    query: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("builtins.input", lambda: typed)
    assert main(ask("Grauhafen", "--approve", "--web", "pages")) == 0
    shown = capsys.readouterr().out
    assert "Search pages in place of the web for: Grauhafen" in shown
    assert ("not approved" in shown) is (query is None)
    assert (f"searched pages in place of the web for: {query}\n" in shown) is (query is not None)


@pytest.mark.usefixtures("_terminal")
def test_the_end_of_the_input_is_no(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended() -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", ended)
    assert main(ask("Grauhafen", "--approve", "--web", "pages", graph="self-crag")) == 0
    assert "not approved" in capsys.readouterr().out


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize(
    ("options", "message"),
    [(["--json", "--web", "pages"], "not with --json"), (["--web", "none"], "no search to ask")],
)
def test_where_nobody_can_be_asked_it_is_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(ask("Grauhafen", "--approve", *options)) == 2
    assert message in capsys.readouterr().err


def test_a_real_terminal_and_an_evaluator_from_a_folder(folder: Path) -> None:
    bert().save_pretrained(folder / "evaluator")
    bert_tokenizer().save_pretrained(folder / "evaluator")
    options = ["--evaluator", "evaluator", "--upper", "1", "--lower", "1", "--web", "pages"]
    theirs, ours = pty.openpty()
    command = [sys.executable, "-m", "selfcorrect_rag.cli", *ask("Grauhafen", *options)]
    run = subprocess.Popen(
        [*command, "--approve"], cwd=folder, stdin=ours, stdout=ours, stderr=subprocess.DEVNULL
    )
    os.close(ours)
    os.write(theirs, b"Vinter page\n")
    shown = b""
    try:
        while read := os.read(theirs, 4096):
            shown += read
    except OSError:  # Linux says so where the other end is closed
        pass
    os.close(theirs)
    assert run.wait(timeout=60) == 0
    assert b"yes, no, or another query of two or more words: " in shown
    assert b"searched pages in place of the web for: Vinter page" in shown
    assert b"Incorrect" in shown
