"""Questions are read from the papers' files, whatever their form, and bad rows are named."""

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.errors import BadRows
from selfcorrect_rag.evaluation.tasks import (
    FORMATS,
    Outcome,
    Question,
    asked,
    count,
    outcome_from,
    outcome_of,
    question_of,
    read_task,
)

ROWS: dict[str, dict[str, Any]] = {
    "arc": {
        "question": "What is tin?",
        "choices": {"label": ["1", "2"], "text": ["a gas", "a metal"]},
        "answerKey": "2",
    },
    "asqa": {
        "ambiguous_question": "Who won?",
        "qa_pairs": [{"short_answers": ["Ada", "Bo"]}, {"answers": ["Ada"]}],
        "answer": "Ada won in 1990, and Bo did in 1991.",
        "docs": [{"title": "Cup", "text": "Ada won."}],
    },
    "pubhealth": {"claim": "Tea cures all.", "label": "REFUTES"},
    "pubmedqa": {"QUESTION": "Does it?", "CONTEXTS": ["One.", "Two."], "final_decision": "maybe"},
    "popqa": {"question": "Who?", "possible_answers": '["Ada", "A."]', "s_wiki_title": "Cup"},
    "triviaqa": {
        "question": "Who?",
        "answer": {"value": "Ada", "aliases": ["Bo"]},
        "question_source": "x",
    },
    "nq": {"query": "who", "golden_answers": ["Ada"], "metadata": {"nq_annotated_gold": {"x": 1}}},
    "2wikimultihopqa": {
        "_id": "w",
        "question": "Who?",
        "answer": "Ada",
        "evidences": [["a", "b", "c"]],
        "context": [["Cup", ["Ada won.", " It rained."]], ["Bo", ["He lost."]]],
        "supporting_facts": [["Cup", 0]],
    },
    "yes-no": {"question": "Is it?", "answer": True},
    "qa": {"question": "How many?", "answers": [3], "ctxs": [{"contents": '"Cup"\nAda won.'}]},
}


def test_what_is_read_of_each_format() -> None:
    read = {name: question_of(row, 7) for name, row in ROWS.items()}
    assert read.keys() == FORMATS.keys()
    several = {"asqa": ("Ada", "Bo"), "popqa": ("Ada", "A."), "triviaqa": ("Ada", "Bo")}
    single = {"arc": "B", "pubhealth": "false", "pubmedqa": "maybe", "yes-no": "yes", "qa": "3"}
    single |= {"nq": "Ada", "2wikimultihopqa": "Ada"}
    expected = {**several, **{name: (answer,) for name, answer in single.items()}}
    assert {name: question.answers for name, question in read.items()} == expected
    assert asked(read["arc"]) == "What is tin?\nA: a gas\nB: a metal"
    assert asked(read["pubhealth"]) == "Tea cures all."
    assert list(read["pubmedqa"].choices) == ["yes", "no", "maybe"]
    assert [p.page_content for p in read["pubmedqa"].passages or ()] == ["One.", "Two."]
    assert read["asqa"].short_answers == (("Ada", "Bo"), ("Ada",))
    assert {name: q.task for name, q in read.items() if q.task} == {
        name: name for name in FORMATS if name not in ("pubmedqa", "yes-no", "qa")
    }
    assert [p.metadata["title"] for p in read["asqa"].passages or ()] == ["Cup"]
    cup, _bo = read["2wikimultihopqa"].passages or ()
    assert (cup.metadata, cup.page_content) == ({"title": "Cup"}, "Ada won. It rained.")
    (flash,) = read["qa"].passages or ()
    assert (flash.metadata["title"], flash.page_content) == ("Cup", "Ada won.")
    assert (read["2wikimultihopqa"].id, read["qa"].id) == ("w", "row-7")


def test_questions_for_which_a_refusal_is_right() -> None:
    for flag in ({"is_impossible": True}, {"answerable": "false"}, {"unanswerable": "True"}):
        question = question_of({"question": "Who?", "answer": "Ada", **flag}, 1)
        assert (question.unanswerable, question.answers) == (True, ())


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"answers": ["x"]}, "has no question"),
        ({"question": "  "}, "has no question"),
        ({"question": "Who?", "answers": {"x": 1}}, "as an answer"),
        ({"question": "Who?", "answers": "[1,"}, "not a JSON list"),
        ({"question": "Who?", "choices": ["a"]}, "two or more choices"),
        ({"question": "Who?", "choices": {"A": "a", "B": "b"}, "answer": "c"}, "not one of A, B"),
        ({"claim": "So.", "label": "unproven"}, "not one of true, false"),
        ({"question": "Who?", "ctxs": 3}, "as its passages"),
        ({"question": "Who?", "ctxs": [{"title": "x"}]}, "without text"),
    ],
)
def test_a_bad_row_says_why(row: Any, reason: str) -> None:
    with pytest.raises(BadRows, match=reason):
        question_of(row, 1)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("form", ["jsonl", "list", "data", "by_id", "csv", "tsv"])
def test_files_of_all_kinds_give_equal_questions(tmp_path: Path, form: str, zipped: bool) -> None:
    rows = [
        {"id": "a", "question": "Who, then?", "answer": "Ada"},
        {"id": "b", "question": "Étape?", "answer": "x"},
    ]
    delimiter = {"csv": ",", "tsv": "\t"}.get(form)
    if delimiter:
        lines = ["id", "question", "answer"], *(list(row.values()) for row in rows)
        text = "\n".join(delimiter.join(f'"{cell}"' for cell in line) for line in lines)
    elif form == "jsonl":
        text = "\ufeff" + "\n\n".join(json.dumps(row) for row in rows)
    else:
        by_id = {row["id"]: row for row in rows}
        made: Any = {"list": rows, "data": {"data": rows}, "by_id": by_id}
        text = json.dumps(made[form], indent=2 if form == "list" else None)
    suffix = {"tsv": ".tsv", "csv": ".csv"}.get(form, ".json")
    file = tmp_path / f"questions{suffix}{'.gz' if zipped else ''}"
    file.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    task = read_task(file)
    read = [(q.id, q.question, *q.answers) for q in task.questions]
    assert read == [tuple(row.values()) for row in rows]
    assert (task.name, task.skipped) == ("questions", ())


def test_bad_rows_are_named_and_the_others_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    good = b'{"question": "Who?", "id": "a"}\n'
    file.write_bytes(good + b"\n{broken\n" + good + b'"text"\n{"question": "Why?"}\n')
    task = read_task(file)
    assert [question.id for question in task.questions] == ["a", "row-6"]
    assert [skipped.split()[0] for skipped in task.skipped] == [f"{file}:{n}:" for n in (3, 4, 5)]
    assert "id 'a' of an earlier row" in task.skipped[1]
    assert [q.id for q in read_task(file, limit=1).questions] == ["a"]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.jsonl", None, "cannot read"),
        ("a.parquet", b"PAR1\xb0\x81", "JSON lines or CSV"),
        ("a.json", b"[1, 2", "cannot read"),
        ("a.jsonl", b'{"question": "\xff"}', "in UTF-8"),
        ("a.gz", b"\x1f\x8b" + b"x" * 20, "cannot read"),
        ("a.csv", b'question\n"open\n', "a.csv:"),
        ("a.jsonl", b'{"answers": []}', "no valid question: .*a.jsonl:1: has no question"),
        ("a.jsonl", b"\n", "holds no rows"),
        ("hf:a:b:c:d", None, "hf:NAME:CONFIGURATION:SPLIT"),
    ],
)
def test_a_source_that_cannot_be_read(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    source = name if name.startswith("hf:") else str(tmp_path / name)
    if content is not None:
        Path(source).write_bytes(content)
    with pytest.raises(BadRows, match=reason):
        read_task(source)


def test_a_table_row_with_too_many_cells_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('n,question,answers\n0,Who?,"[""Ada"", ""Bo""]"\n1,Why?,x,y\n')
    task = read_task(file)
    assert [q.answers for q in task.questions] == [("Ada", "Bo")]
    assert task.skipped == (f"{file}:3: more cells than columns",)


def test_hub_data_sets_are_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def load(*given: Any, **options: Any) -> Any:
        calls.append((given, options))
        return iter([{"question": f"{n}?"} for n in range(1000)])

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load))
    task = read_task("hf:akariasai/PopQA:main:train", limit=2)
    assert [q.question for q in task.questions] == ["0?", "1?"]
    assert calls == [(("akariasai/PopQA", "main"), {"split": "train", "streaming": True})]
    assert read_task("hf:x", limit=1).name == "hf:x"
    assert calls[1] == (("x", None), {"split": "test", "streaming": True})


QUESTION = Question("q", "Who?")
PAGE = Document("Ada won.", metadata={"title": "Cup", "url": "https://example.org"})


def test_what_a_corrective_graph_says() -> None:
    result = {
        "answer": "Ada.",
        "cited_answer": "Ada [1].",
        "citations": [{"number": 1, "passage": 0}],
        "passages": [PAGE, PAGE],
        "knowledge": [PAGE],
        "action": "ambiguous",
        "grades": [{"score": 0.4}, {"score": None}],
        "web_query": "cup",
        "web_failure": "",
        "route": [{"step": "retrieve"}, {"step": "generate"}],
        "usage": {"model_calls": 3, "prompt_tokens": 20, "generated_tokens": None},
    }
    outcome = outcome_of(QUESTION, "crag", result, 1.23456)
    assert outcome.passages == (
        {"title": "Cup", "text": "Ada won.", "source": "https://example.org"},
    )
    assert (outcome.action, outcome.grades) == ("ambiguous", (0.4,))
    assert outcome.retrieved
    assert outcome.searched
    assert (outcome.model_calls, outcome.prompt_tokens, outcome.generated_tokens) == (3, 20, None)
    assert outcome.seconds == 1.235
    assert outcome_from(json.loads(json.dumps(outcome._asdict()))) == outcome


OUTCOMES = [
    Outcome("1", "m", "Ada", retrieved=True, citations=({"number": 1},), action="correct"),
    Outcome("2", "m", "Bo", retrieved=True, action="incorrect", searched=True),
    Outcome("3", "m", "I do not know.", retrieved=True, refused=True, action="ambiguous"),
    Outcome("4", "m", "", error="down"),
]


def test_every_row_is_counted() -> None:
    ends = {"rows": 4, "answered": 2, "refused": 1, "failed": 1}
    assert count(OUTCOMES) == {**ends, "cited": 1, "retrieved": 3, "searched": 1, "corrected": 2}
