"""`selfcorrect-rag ask --graph instruct-rag`, on a BM25 index, the reader and the nano rationale
model."""

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from rich.console import Console

from selfcorrect_rag.cli import main
from selfcorrect_rag.commands.show import show_run
from selfcorrect_rag.search import BM25Index


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ask") / "index"
    with BM25Index(path) as made:
        made.add(
            [
                Document(
                    "Tarnholm Bridge was designed by Ida Lund.", metadata={"title": "Tarnholm"}
                ),
                Document("Tarnholm Mill was built in 1802.", metadata={"title": "Tarnholm Mill"}),
            ]
        )
    return path


def ask(index: Path, *options: str) -> list[str]:
    question = "Who designed Tarnholm Bridge?"
    return ["ask", question, "--graph", "instruct-rag", "--index", str(index), *options]


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_nano_model_is_asked_as_it_was_trained(
    index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = answered(capsys, *ask(index, "--engine", "transformers"))
    assert result["mode"] == "ft"
    assert result["rationale"]
    assert result["answer"]
    assert sorted(result["numbering"]) == [0, 1]
    for i, citation in zip(result["useful_documents"], result["citations"], strict=True):
        assert citation["passage"] == i


def test_the_reader_is_asked_by_instruction(
    index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = answered(capsys, *ask(index))
    assert result["mode"] == "instruct"
    assert result["answer"]
    assert sorted(result["numbering"]) == [0, 1]


def test_a_baseline(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = answered(capsys, *ask(index, "--mode", "no_retrieval"))
    assert (result["mode"], result["rationale"], result["numbering"]) == ("no_retrieval", "", [])


def test_demonstrations_from_a_file(
    index: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"question": "Who wrote Emma?", "rationale": "Document [1] says so.", "answers": ["J. A."]},
        {"question": "Who wrote Ulysses?", "rationale": "Document [2] says so."},
    ]
    file = tmp_path / "shown.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    options = ["--demonstrations-from", str(file), "--selection", "fixed", "--demonstrations", "1"]
    result = answered(capsys, *ask(index, *options))
    assert result["mode"] == "icl"
    assert result["demonstrations"] == rows[:1]


@pytest.mark.parametrize("line", ["[]", "{", '{"rationale": "x"}'])
def test_a_line_that_is_no_demonstration(
    index: Path, tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shown.jsonl"
    file.write_text(f'{{"question": "Who?", "rationale": "x"}}\n{line}\n')
    assert main(ask(index, "--demonstrations-from", str(file))) == 2
    error = capsys.readouterr().err
    assert f"{file}:2" in error
    assert len(error.splitlines()) == 1


def test_demonstrations_are_for_instruct_rag_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ask", "Who?", "--demonstrations-from", str(tmp_path / "x")]) == 2
    assert "--demonstrations-from is for --graph instruct-rag" in capsys.readouterr().err


def test_how_a_person_reads_it() -> None:
    result = {
        "question": "Who?",
        "mode": "ft",
        "passages": [Document("a", metadata={"title": f"T{i}"}) for i in range(3)],
        "numbering": [2, 1, 0],
        "useful_documents": [0],
        "dismissed_documents": [2],
        "rationale": "Document [3] \x1b[31msays[/] so.\nThe answer is: Ada.",
        "answer": "Ada",
        "cited_answer": "",
        "citations": [{"number": 3, "title": "T0", "source": "notes"}],
        "notes": ["a note"],
    }
    console = Console(file=StringIO(), width=100)
    show_run(console, result, 0.5, "notes", "the reader")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "D1  dismissed  T2: a" in shown
    assert "D3  useful     T0: a" in shown
    assert "Document [3] [31msays[/] so." in shown
    assert "[3] T0, notes" in shown
    assert "a note" in shown
