"""Rationales: what a model is asked, what is written, and that a killed run resumes."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from selfcorrect_rag.errors import BadRun, BadTrainingData
from selfcorrect_rag.journal import run_folder
from selfcorrect_rag.training import labelling
from selfcorrect_rag.training.instruct import read_instruct_rows
from selfcorrect_rag.training.rationales import RationaleOptions, Sample, make_rationales
from tests.training.toys import Teacher, lines


def sample(i: int, number: int = 7) -> Sample:
    documents = [
        {"title": f"t{j}", "text": f"text {j} {'' if j else f'a{i}'}"} for j in range(number)
    ]
    return Sample(question=f"Who is {i}?", answers=[f"a{i}"], documents=documents)


ROWS = [sample(i) for i in range(12)]


def explain(prompt: str) -> str:
    name = prompt.split("Who is ")[-1].split("?")[0]
    return f" It is a{name}. " if int(name) % 4 else "Nobody knows."


def make(out: Path, teacher: Teacher | None, rows: Any = ROWS, **options: Any) -> dict[str, Any]:
    model = teacher.model if teacher else None
    return make_rationales(model, rows, out, RationaleOptions(model="m", **options))


def test_rows_and_report(tmp_path: Path) -> None:
    out, teacher = tmp_path / "rows.jsonl", Teacher(explain)
    report = make(out, teacher)
    rows = lines(out)
    assert [row["question"] for row in rows] == [row.question for row in ROWS]
    assert list(rows[0]) == [
        *("question", "answers", "documents", "rationale", "consistent", "prompt", "completion"),
    ]
    assert [d["title"] for d in rows[0]["documents"]] == ["t4", "t3", "t2", "t1", "t0"]
    assert rows[1]["completion"] == [{"role": "assistant", "content": "It is a1."}]
    assert "Who is 1?" in rows[1]["prompt"][0]["content"]
    assert "Document [5] (Title: t0): text 0 a1" in rows[1]["prompt"][0]["content"]
    assert [row["consistent"] for row in rows] == [bool(i % 4) for i in range(12)]
    assert (report["written"], report["consistent"], report["calls"]) == (12, 0.75, 12)
    assert (report["relevant"], report["consistent_of_relevant"]) == (12, 0.75)
    make(out, teacher, consistent_only=True)
    assert len(lines(out)) == 9
    assert len(teacher.asked) == 12, "the filter needs no calls"
    assert [len(row.documents) for row in read_instruct_rows(out)] == [5] * 9


def test_ablations_and_the_template(tmp_path: Path) -> None:
    bare = [Sample(question="Who is 1?", documents=["x a1"])]
    make(tmp_path / "a", teacher := Teacher(explain), bare, with_answers=False, top_k=1)
    assert "a1" in teacher.asked[0]
    assert lines(tmp_path / "a")[0]["consistent"] is None
    make(tmp_path / "b", teacher := Teacher(explain), with_documents=False, instruction="Do so.")
    assert "text 0" not in teacher.asked[0]
    assert "Do so." in teacher.asked[0]
    assert lines(tmp_path / "b")[0]["documents"], "which training reads still"
    make(tmp_path / "c", None, order="best_first", dataset="2wikimultihopqa")
    row = lines(tmp_path / "c")[3]
    assert row["documents"][0]["title"] == "t0"
    assert len(row["documents"]) == 7
    assert row["consistent"], "the template names the answer (Table 6)"
    with pytest.raises(BadTrainingData, match="row 1 has no answers"):
        make(tmp_path / "d", Teacher(explain), bare)


def test_a_killed_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelling, "MAX_TRIES", 1)
    make(tmp_path / "whole", Teacher(explain))
    out, first, second = tmp_path / "cut", Teacher(explain), Teacher(explain)
    first.limit = 5
    with pytest.raises(KeyboardInterrupt):
        make(out, first)
    assert make(out, second, estimate=True)["calls"] == 7
    make(out, second)
    assert len(second.asked) == 7
    assert out.read_bytes() == (tmp_path / "whole").read_bytes()
    with pytest.raises(BadRun, match=r"other settings .order"):
        make(out, second, order="best_first")


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
    out = tmp_path / "rows"
    odd = Teacher(lambda prompt: answer if "Who is 2?" in prompt else explain(prompt))
    report = make(out, odd)
    assert (report["written"], report["failed"]) == (11, 1)
    assert reason in lines(run_folder(out) / "failures.jsonl")[0]["reason"]
    report = make(out, again := Teacher(explain))
    assert (report["written"], len(again.asked)) == (12, 1)
