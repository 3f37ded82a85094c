"""`selfcorrect-rag eval`, end to end over a small index and a scripted reader."""

import json
import re
import shlex
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.cli import main
from selfcorrect_rag.search import BM25Index
from tests.commands.mistakes import assert_said_in_one_line
from tests.crag_runs import WordEvaluator
from tests.reader.scripted_reader import ScriptedReader

ROOT = Path(__file__).parents[2]
PEOPLE = {"Oslo": "Lind", "Bergen": "Berg", "Narvik": "Holm", "Bodo": "Moe", "Molde": "Dahl"}
QUESTIONS = [
    {"id": place, "question": f"Who built the mill of {place}?", "answers": [name]}
    for place, name in PEOPLE.items()
] + [{"id": "<evil>", "question": "Who built <script>alert(1)</script>?", "answers": ["Ek"]}]
FOUND = dict.fromkeys(PEOPLE.values(), 0.9)


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "selfcorrect_rag.reader.Reader.load", lambda folder=None: ScriptedReader(FOUND)
    )
    monkeypatch.setattr("selfcorrect_rag.reader.ReaderEvaluator", lambda reader: WordEvaluator())
    with BM25Index(tmp_path / "index") as index:
        index.add(
            Document(f"The gold mill of {place} was built by {name}.", metadata={"title": place})
            for place, name in PEOPLE.items()
        )
    lines = "".join(json.dumps(row) + "\n" for row in QUESTIONS)
    (tmp_path / "mills.jsonl").write_text(lines, encoding="utf-8")


def evaluate(*options: str, out: str = "run") -> int:
    return main(["eval", "mills.jsonl", "--index", "index", "--out", out, *options])


METHODS = ("--method", "no_retrieval", "--method", "rag_first", "--method", "crag:strips=3")


def test_a_run_ends_with_a_table_a_summary_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(*METHODS) == 0
    said = capsys.readouterr()
    assert "rag_first" in said.out
    assert re.search(r"rag_first +0\.833 \[0\.\d{3}, 1\.000\]", said.out)
    assert "cannot be told apart" in said.out
    assert "left to ask for run: about " in said.err
    made: dict[str, Any] = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    assert made["questions"] == 6
    assert list(made["methods"]) == ["no_retrieval", "rag_first", "crag:strips=3"]
    first = made["methods"]["rag_first"]
    assert (first["answered"], first["refused"], first["model_calls"]) == (6, 0, 6)
    assert first["metrics"]["match"]["value"] == pytest.approx(5 / 6)
    assert made["methods"]["no_retrieval"]["refused"] == 6
    assert {pair["first"] for pair in made["comparisons"]["match"]} == {
        "no_retrieval",
        "rag_first",
    }
    assert "passages" in made["about"]["index"]
    assert made["about"]["data"]
    assert made["versions"]["selfcorrect-rag"]
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "cannot be told apart" in page
    assert not re.findall(r"(?:src|href)=\"(?!#)", page)
    HTMLParser().feed(page)


def test_the_same_command_asks_nothing_twice_and_may_ask_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate("--method", "rag_first", "--limit", "2") == 0
    capsys.readouterr()
    assert evaluate("--method", "rag_first", "--json") == 0
    assert json.loads(capsys.readouterr().out)["questions"] == 6
    assert len((tmp_path / "run" / "rows.jsonl").read_bytes().splitlines()) == 6


def test_an_estimate_asks_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate(*METHODS, "--estimate") == 0
    said = capsys.readouterr().err
    assert "rag_first: about 6 model calls" in said
    assert "no index" not in said
    assert not (tmp_path / "run").exists()


def test_without_an_index_the_demo_is_read_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    estimate = ("--out", "run", "--method", "rag", "--estimate")
    assert main(["eval", "mills.jsonl", *estimate]) == 0
    said = "no index at .selfcorrect/index: the demo's documents are read"
    assert said in capsys.readouterr().err
    row = {"question": "Who?", "answers": ["Ek"], "ctxs": [{"title": "", "text": "Ek did."}]}
    (tmp_path / "given.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert main(["eval", "given.jsonl", *estimate]) == 0
    assert said not in capsys.readouterr().err


def test_citations_are_judged_by_a_function_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ("--metric", "citation_recall", "--metric", "citation_precision")
    judge = ("--entailment", "tests.commands.test_evaluate:says")
    assert evaluate("--method", "rag_first", *wanted, *judge) == 0
    shown = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    found = shown["methods"]["rag_first"]["metrics"]
    assert found["citation_recall"]["value"] == found["citation_precision"]["value"] == 1
    assert ASKED
    ASKED.clear()
    assert evaluate("--method", "rag_first", *wanted, *judge) == 0
    assert not ASKED
    capsys.readouterr()
    assert main(["eval", "compare", "run", "run", *wanted, *judge]) == 0
    assert re.search(r"A rag_first +B rag_first +\+0\.000", capsys.readouterr().out)


ASKED: list[str] = []


def says(premise: str, hypothesis: str) -> bool:
    """What judges citations."""
    ASKED.append(hypothesis)
    return hypothesis.rstrip(".") in premise


def test_mauve_is_one_value_and_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = SimpleNamespace(compute_mauve=lambda **given: SimpleNamespace(mauve=0.25))
    monkeypatch.setitem(sys.modules, "mauve", told)
    with (tmp_path / "mills.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({**row, "claims": ["x"], "answer": "y"}) + "\n" for row in LONG)
    wanted = ("--metric", "mauve", "--metric", "rouge_lsum")
    assert evaluate("--method", "rag_first", "--method", "rag", *wanted) == 0
    shown = capsys.readouterr().out
    assert re.search(r"rag_first +0\.250  +0\.000 \[", shown)
    made = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    assert made["comparisons"]["mauve"] == []
    assert made["methods"]["rag"]["metrics"]["mauve"]["interval"] is None
    assert "0.250 (0.250)" in (tmp_path / "run" / "report.html").read_text("utf-8")


LONG = [{"id": row["id"], "question": row["question"]} for row in QUESTIONS]


def test_every_metric_is_compared_and_many_pairs_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    again = [{**row, "id": f"{row['id']} again"} for row in QUESTIONS]
    lines = "".join(json.dumps(row) + "\n" for row in [*QUESTIONS, *again])
    Path("mills.jsonl").write_text(lines, encoding="utf-8")
    alike = [part for n in range(3) for part in ("--method", f"x{n}=rag_first")]
    assert evaluate(*alike, "--method", "no_retrieval", "--metric", "match", "--metric", "f1") == 0
    components, *tables = capsys.readouterr().out.split("\n\n")[1:]
    assert components.startswith("components\n")
    assert [table.split("\n")[0] for table in tables] == ["match", "f1"]
    for table in tables:
        assert table.count("is better") == 3
        assert "\n3 other pairs cannot be told apart" in table
        assert "+0.000" not in table
    four = [part for n in range(4) for part in ("--method", f"x{n}=rag_first")]
    capsys.readouterr()
    assert evaluate(*four, "--metric", "match", out="alike") == 0
    assert "\nmatch: none of 6 pairs can be told apart" in capsys.readouterr().out


def test_the_page_draws_what_answering_less_is_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert evaluate(*METHODS) == 0
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "<svg" in page
    assert "Confidence of crag:strips=3: best grade of a document." in page
    made = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    (curve,) = made["abstention"]["match"].values()
    assert curve["points"][-1]["accuracy"] == pytest.approx(5 / 6)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert evaluate(*METHODS) == 0
    assert "selfcorrect-rag[evaluation]" in (tmp_path / "run" / "report.html").read_text("utf-8")


def test_a_bound_stops_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate("--method", "rag_first", "--max-calls", "2") == 1
    assert "stopped by max_calls: the same command goes on" in capsys.readouterr().err
    assert evaluate("--method", "rag_first") == 0


def test_two_runs_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    evaluate("--method", "x=rag_first", out="one")
    evaluate("--method", "x=no_retrieval", out="two")
    capsys.readouterr()
    assert main(["eval", "compare", "one", "two", "--metric", "match"]) == 0
    shown = capsys.readouterr().out
    assert "A is one, B is two" in shown
    assert re.search(r"A x +B x +\+0\.833 \[", shown)
    assert main(["eval", "compare", "one", "nowhere"]) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--method", "selfrag"], "there is no method 'selfrag'"),
        (["--method", "rag", "--method", "rag"], "two methods are called rag"),
        ([], "name a method"),
        (["--method", "rag", "--metric", "goodness"], "--metric goodness: there are"),
        (["--method", "rag", "--metric", "factscore"], "--metric factscore: there are"),
        (["--method", "rag", "--metric", "citation_recall"], "needs --entailment NAME"),
        (["--method", "rag", "--entailment", "a:b"], "--entailment is for --metric citation"),
        (["--method", "rag", "--metric", "citation_recall", "--entailment", "a:b"], "a:b cannot"),
        (["--method", "no_module:graph"], "no_module:graph cannot be opened"),
    ],
)
def test_mistakes_are_said_in_one_line(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate(*options) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("selfcorrect-rag: ")
    assert message in error


def test_a_run_has_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "mills.jsonl", "--method", "rag"]) == 2
    assert_said_in_one_line(capsys, "--out RUN: name the folder")


@pytest.mark.parametrize("page", ["README.md", "docs/evaluation.md"])
def test_the_command_of_the_pages(page: str, tmp_path: Path) -> None:
    shown = (ROOT / page).read_text("utf-8").replace("\\\n", " ")
    commands = re.findall(r"^selfcorrect-rag (eval .*--out.*)$", shown, re.MULTILINE)
    shutil.copy("mills.jsonl", "questions.jsonl")
    shutil.copytree("index", ".selfcorrect/index")
    assert len(commands) == {"README.md": 1, "docs/evaluation.md": 2}[page]
    for arguments in map(shlex.split, commands):
        assert main(arguments) == 0
        out = tmp_path / arguments[arguments.index("--out") + 1]
        made = json.loads((out / "summary.json").read_text("utf-8"))
        assert made["questions"] == 6
        assert len(made["sweeps"]) == arguments.count("--sweep")


def test_a_sweep_asks_once_and_is_plotted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate("--sweep", "self_rag:weight_issup=0,1", "--sweep", "self_rag:passages=1,3") == 0
    said = capsys.readouterr()
    assert re.search(r"self_rag:weight_issup=1: about 0 model calls", said.err)
    made = json.loads((tmp_path / "run" / "summary.json").read_text("utf-8"))
    asked, whole = (
        sum(method[name] for method in made["methods"].values())
        for name in ("asked_calls", "model_calls")
    )
    assert f"{asked} of {whole} calls were made" in said.out
    assert asked <= whole / 2
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert page.split('<section id="sweeps"')[1].split("</section>")[0].count("<svg") == 3
