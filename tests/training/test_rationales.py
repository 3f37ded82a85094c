"""Rationales: what a model is asked, what is written, and that a killed run resumes."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from selfcorrect_rag.errors import BadRun
from selfcorrect_rag.journal import run_folder
from selfcorrect_rag.training.instruct import InstructRow, RationaleOptions, make_rationales
from selfcorrect_rag.training.rows import read_rows
from tests.training.toys import Teacher, lines, options


def sample(i: int, number: int = 7) -> dict[str, Any]:
    documents = [
        {"title": f"t{j}", "text": f"text {j} {'' if j else f'a{i}'}"} for j in range(number)
    ]
    return {"question": f"Who is {i}?", "answers": [f"a{i}"], "documents": documents}


def explain(prompt: str) -> str:
    name = prompt.split("Who is ")[-1].split("?")[0]
    return f" It is a{name}. " if int(name) % 4 else "Nobody knows."


def make(folder: Path, teacher: Teacher, **given: Any) -> dict[str, Any]:
    made = options(RationaleOptions, folder, map(sample, range(12)), **given)
    return make_rationales(made, teacher.model)


def test_rows_and_report(tmp_path: Path) -> None:
    out, teacher = tmp_path / "out", Teacher(explain)
    report = make(tmp_path, teacher)
    rows = lines(out)
    assert [row["question"] for row in rows] == [f"Who is {i}?" for i in range(12)]
    names = ["question", "answers", "documents", "rationale", "consistent", "prompt", "completion"]
    assert list(rows[0]) == names
    assert [d["title"] for d in rows[0]["documents"]] == ["t4", "t3", "t2", "t1", "t0"]
    assert rows[1]["completion"] == [{"role": "assistant", "content": "It is a1."}]
    assert "Who is 1?" in rows[1]["prompt"][0]["content"]
    assert "Document [5] (Title: t0): text 0 a1" in rows[1]["prompt"][0]["content"]
    assert [row["consistent"] for row in rows] == [bool(i % 4) for i in range(12)]
    assert (report["written"], report["consistent"], report["labelled"]) == (12, 0.75, 12)
    make(tmp_path, teacher, consistent_only=True)
    assert len(lines(out)) == 9
    assert len(teacher.asked) == 12, "the filter needs no calls"
    assert [len(row.documents) for row in read_rows(out, InstructRow)] == [5] * 9


def test_the_prompt_has_the_instruction_of_the_data_set(tmp_path: Path) -> None:
    make(tmp_path / "a", asqa := Teacher(explain), dataset="asqa", top_k=7)
    assert "the question may be ambiguous" in asqa.asked[0]
    assert "Document [7] (Title: t0)" in asqa.asked[0]


def test_a_run_again_asks_nothing_and_has_the_same_options(tmp_path: Path) -> None:
    make(tmp_path, Teacher(explain))
    make(tmp_path, again := Teacher(explain))
    assert not again.asked
    with pytest.raises(BadRun, match=r"other settings .top_k"):
        make(tmp_path, again, top_k=2)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (AIMessage(" "), "the model wrote nothing"),
        (AIMessage("It is", response_metadata={"finish_reason": "length"}), "was cut"),
    ],
)
def test_a_bad_rationale_is_left_out_and_asked_again(
    tmp_path: Path, answer: AIMessage, reason: str
) -> None:
    odd = Teacher(lambda prompt: answer if "Who is 2?" in prompt else explain(prompt))
    report = make(tmp_path, odd)
    assert (report["written"], report["failed"]) == (11, 1)
    assert reason in lines(run_folder(tmp_path / "out") / "failures.jsonl")[0]["reason"]
    report = make(tmp_path, again := Teacher(explain))
    assert (report["written"], len(again.asked)) == (12, 1)
