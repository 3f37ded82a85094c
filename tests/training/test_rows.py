"""Rows of training files: what is read, what is refused and where, and which part they are in."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.training import ENTRYPOINTS
from selfcorrect_rag.training.critic_data import CriticInstance, CriticRow
from selfcorrect_rag.training.evaluator import Graded, read_corpus, read_graded
from selfcorrect_rag.training.generator import GeneratorOptions, GeneratorRow
from selfcorrect_rag.training.instruct import InstructRow
from selfcorrect_rag.training.rationales import Sample, read_samples
from selfcorrect_rag.training.rows import is_held_out, part_of, read_rows, title_of
from tests.training.toys import row, write


def test_rows_of_both_formats(tmp_path: Path) -> None:
    rows = [{"instruction": "a\u2028", "output": "b", "input": None, "id": 7, "x": [1]}]
    (tmp_path / "a.json").write_text(json.dumps(rows, ensure_ascii=False))
    (tmp_path / "a.jsonl").write_text(f"\ufeff{json.dumps(rows[0], ensure_ascii=False)}\n\n")
    read = read_rows(tmp_path / "a.json", GeneratorRow)
    assert read == read_rows(tmp_path / "a.jsonl", GeneratorRow) == [row("a\u2028", "b", id="7")]


@pytest.mark.parametrize(
    ("kind", "bad", "reason"),
    [
        (GeneratorRow, "[1]", "a row is a JSON object with instruction, output"),
        (GeneratorRow, "{", "not JSON"),
        (GeneratorRow, '{"instruction": "a"}', "output: Field required"),
        (GeneratorRow, '{"instruction": " ", "output": "a"}', "instruction: must not be empty"),
        (CriticInstance, '{"output": "a"}', "instruction: Field required"),
        (CriticRow, '{"key": "a", "instruction": "", "input": "", "token": "[x]", "part": "test"}',
         r"token: \[x\] is not a reflection token"),
        (Graded, '{"question": "a"}', "positives and negatives are both empty"),
        (Graded, '{"question": "a", "positives": [" "]}', "positives: a passage must be"),
        (Graded, '{"question": "a", "positives": ["b"], "negatives": ["b"]}', "is both"),
        (Sample, '{"question": "a"}', "documents: Field required"),
        (Sample, '{"question": "a", "documents": [{"title": "t"}]}', "documents: a passage must"),
        (Sample, '{"question": "a", "documents": [], "answers": [["b"]]}', "answers: Input should"),
        (InstructRow, '{"question": "a", "documents": [], "rationale": ""}', "rationale: must not"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_by_its_line(
    tmp_path: Path, kind: type[GeneratorRow], bad: str, reason: str
) -> None:
    good = (
        '{"instruction": "a", "output": "b", "key": "k", "input": "i", "token": "[Relevant]",'
        ' "part": "test", "question": "q", "positives": ["c"], "documents": ["d"],'
        ' "rationale": "r"}'
    )
    file = write(tmp_path / "rows.jsonl", good, "", bad)
    with pytest.raises(BadTrainingData, match=f"rows.jsonl:3: .*{reason}") as refused:
        read_rows(file, kind)
    assert "\n" not in str(refused.value)
    if bad != "{":
        file.write_text(f"[{good}, {bad}]")
        with pytest.raises(BadTrainingData, match=f"rows.jsonl:row 2: .*{reason}"):
            read_rows(file, kind)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xe9")
    write(tmp_path / "empty", "")
    write(tmp_path / "open", "[{}, ")
    for name, reason in (
        ("none", "cannot read"),
        ("latin", "cannot read"),
        ("empty", "holds no rows"),
        ("open", "not a JSON list"),
    ):
        with pytest.raises(BadTrainingData, match=reason):
            read_rows(tmp_path / name, GeneratorRow)


def test_official_samples(tmp_path: Path) -> None:
    file = write(
        tmp_path / "s",
        {"question": " q ", "answers": ["a ", "a", " "], "ctxs": [{"title": "t", "text": "x"}]},
        {"question": "q", "qa_pairs": [{"answers": ["b"]}, {"answers": ["c"]}], "documents": ["y"]},
        {"question": "q", "documents": [{"text": n, "score": n} for n in ("2", "10")]},
        {"question": "q", "documents": [{"text": "1"}, {"text": "2", "score": 1}]},
    )
    one, two, scored, partly = read_samples(file)
    assert (one.question, one.answers, two.answers) == ("q", ("a",), ("b", "c"))
    assert [title_of(d) for d in (*one.documents, *two.documents)] == ["t", ""]
    assert [d.page_content for d in scored.documents] == ["10", "2"], "scores are numbers"
    assert [d.page_content for d in partly.documents] == ["1", "2"]
    assert one.digest == read_samples(file)[0].digest != two.digest


def test_rows_of_one_question_are_merged(tmp_path: Path) -> None:
    file = write(
        tmp_path / "rows",
        {"question": "q ", "positives": [{"title": "T", "text": "a"}], "negatives": ["b", "c"]},
        {"question": "q", "positives": ["b"], "negatives": ["d", "c"]},
    )
    (merged,) = read_graded(file)
    assert (merged.question, merged.positives, merged.negatives) == (
        "q",
        ("T // a", "b"),
        ("c", "d"),
    )
    assert read_corpus(write(tmp_path / "c", '"a"', {"text": "b", "title": "T"})) == ["a", "T // b"]


def test_a_question_is_always_in_the_same_part() -> None:
    parts = [part_of(f"question {i}") for i in range(2000)]
    assert [round(parts.count(p) / 2000, 1) for p in ("train", "development", "test")] == [
        0.7,
        0.1,
        0.2,
    ]
    assert part_of(" Who  is\nit") == part_of("who IS it")
    assert part_of("\ud800") in ("train", "development", "test")
    assert 0.02 < sum(is_held_out(f"q {i}", 0.05) for i in range(2000)) / 2000 < 0.08
    assert not is_held_out("q", 0.0)


def test_every_entrypoint_describes_its_options() -> None:
    assert list(ENTRYPOINTS) == [
        *("critic-data", "critic", "generator-data", "generator"),
        *("evaluator", "rationales", "instruct"),
    ]
    for entrypoint in ENTRYPOINTS.values():
        fields = entrypoint.options.model_fields
        assert all(field.description for field in fields.values())
        assert fields["data"].is_required()
        assert entrypoint.help.endswith(".")
    options = ENTRYPOINTS["evaluator"].options(data="rows", out="run", seed=3)
    assert "data" not in options.identity
    assert options.identity["seed"] == 3


def test_defaults_are_the_papers() -> None:
    small, large, llama3 = (GeneratorOptions(preset=p) for p in ("7b", "13b", "8b"))
    for options in (small, large):
        assert (options.num_train_epochs, options.learning_rate, options.batch_size) == (
            3,
            2e-5,
            128,
        )
        assert (options.lr_scheduler_type, options.warmup_ratio) == ("linear", 0.03)
    assert (small.max_length, large.max_length, llama3.max_length) == (2048, 1524, 4096)
    assert (llama3.num_train_epochs, llama3.learning_rate) == (1, 1e-5)
    assert GeneratorOptions(preset="8b", learning_rate=1).learning_rate == 1
    instruct = ENTRYPOINTS["instruct"].options(data="d", out="o").identity
    assert (instruct["num_train_epochs"], instruct["learning_rate"]) == (2, 2.5e-5)
    assert (instruct["lr_scheduler_type"], instruct["max_length"]) == ("cosine", 4096)
    evaluator = ENTRYPOINTS["evaluator"].options(data="d", out="o").identity
    assert (evaluator["learning_rate"], evaluator["batch_size"]) == (1e-4, 12)
    labels = ENTRYPOINTS["critic-data"].options(data="d", out="o", model="m").identity
    assert (labels["temperature"], labels["max_tokens"]) == (1.0, 200)
    for bad in ({"learning_rate": 0}, {"warmup_ratio": 1}, {"seed": -1}, {"epochs": 3}):
        with pytest.raises(ValidationError):
            GeneratorOptions(**bad)
