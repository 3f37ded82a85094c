"""Rows of training files: what is read, what is refused and where, and which part they are in."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from selfcorrect_rag.errors import BadTrainingData
from selfcorrect_rag.training import ENTRYPOINTS
from selfcorrect_rag.training.critic import CriticInstance, CriticRow
from selfcorrect_rag.training.evaluator import Graded
from selfcorrect_rag.training.generator import GeneratorOptions, GeneratorRow
from selfcorrect_rag.training.instruct import InstructRow, Sample
from selfcorrect_rag.training.rows import hold_out, part_of, read_rows
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
        (GeneratorRow, '{"instruction": "a"}',
         "output: Field required; a row is a JSON object with instruction, output"),
        (GeneratorRow, '{"instruction": " ", "output": "a"}', "instruction: must not be empty"),
        (CriticInstance, '{"output": "a"}', "instruction: Field required"),
        (CriticRow, '{"key": "a", "instruction": "", "input": "", "token": "[x]", "part": "test"}',
         "token: Input should be"),
        (Graded, '{"question": "a"}', "positives and negatives are both empty"),
        (Graded, '{"question": "a", "positives": [" "]}', "positives: a passage must be"),
        (Graded, '{"question": "a", "positives": ["b"], "negatives": ["b"]}', "is both"),
        (Sample, '{"question": "a", "answers": ["b"]}', "documents: Field required"),
        (Sample, '{"question": "a", "documents": ["b"]}', "answers: Field required"),
        (Sample, '{"question": "a", "documents": ["b"], "answers": []}', "answers: Tuple should"),
        (Sample, '{"question": "a", "documents": ["b"], "answers": [["c"]]}', "answers: Input"),
        (Sample, '{"question": "a", "answers": ["b"], "documents": [{"title": "t"}]}', "documents"),
        (InstructRow, '{"question": "a", "documents": [], "rationale": ""}', "rationale: must not"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_by_its_line(
    tmp_path: Path, kind: type[GeneratorRow], bad: str, reason: str
) -> None:
    good = (
        '{"instruction": "a", "output": "b", "key": "k", "input": "i", "token": "[Relevant]",'
        ' "part": "test", "question": "q", "positives": ["c"], "documents": ["d"],'
        ' "rationale": "r", "answers": ["b"]}'
    )
    file = write(tmp_path / "rows.jsonl", good, "", bad)
    with pytest.raises(BadTrainingData, match=f"rows.jsonl:3: .*{reason}") as refused:
        read_rows(file, kind)
    assert "\n" not in str(refused.value)
    file.write_text(f"[{good}, {bad}]")
    with pytest.raises(BadTrainingData, match=f"rows.jsonl:2: .*{reason}"):
        read_rows(file, kind)


def test_official_samples(tmp_path: Path) -> None:
    answers = {"answers": ["a"]}
    file = write(
        tmp_path / "s",
        {"question": "q", **answers, "ctxs": [{"title": "t", "text": "x"}, "y"]},
        {"question": "q", **answers, "documents": [{"text": n, "score": n} for n in ("2", "10")]},
    )
    plain, scored = read_rows(file, Sample)
    assert [d.metadata["title"] for d in plain.documents] == ["t", ""]
    assert [d.page_content for d in scored.documents] == ["10", "2"], "scores are numbers"
    assert plain.digest == read_rows(file, Sample)[0].digest != scored.digest


def test_a_question_is_always_in_the_same_part() -> None:
    parts = [part_of(f"question {i}") for i in range(2000)]
    shares = [round(parts.count(p) / 2000, 1) for p in ("train", "development", "test")]
    assert shares == [0.7, 0.1, 0.2]
    assert part_of(" Who  is\nit") == part_of("who IS it")
    assert part_of("\ud800") in ("train", "development", "test")
    rows = [row(f"q {i}", "a") for i in range(2000)]
    train, held_out = hold_out(rows, 0.05)
    assert 0.02 < len(held_out) / 2000 < 0.08
    assert sorted(map(rows.index, train + held_out)) == list(range(2000))
    assert hold_out(held_out, 0.05) == ([], held_out)
    assert hold_out(rows, 0.0) == (rows, [])


def test_every_entrypoint_describes_its_options() -> None:
    assert list(ENTRYPOINTS) == [
        *("critic-data", "critic", "generator-data", "generator"),
        *("evaluator", "rationales", "instruct"),
    ]
    for entrypoint in ENTRYPOINTS.values():
        fields = entrypoint.options.model_fields
        assert all(field.description for field in fields.values())
        assert fields["data"].is_required()
        assert "ows are" in " ".join(entrypoint.help.split())
    options = ENTRYPOINTS["evaluator"].options(data="rows", out="run", seed=3)
    assert "data" not in options.identity
    assert options.identity["seed"] == 3


def test_defaults_are_the_papers() -> None:
    given = {name: of.options(data="d", out="o").identity for name, of in ENTRYPOINTS.items()}

    def named(entrypoint: str, *names: str) -> list[object]:
        return [given[entrypoint][name] for name in names]

    for name in ("critic", "generator"):
        found = named(name, "num_train_epochs", "learning_rate", "batch_size", "warmup_ratio")
        assert found == [3, 2e-5, 128, 0.03]
        assert named(name, "lr_scheduler_type", "max_length") == ["linear", 2048]
    assert named("instruct", "num_train_epochs", "learning_rate") == [2, 2.5e-5]
    assert named("instruct", "lr_scheduler_type", "max_length") == ["cosine", 4096]
    assert named("evaluator", "learning_rate", "batch_size") == [1e-4, 12]
    assert named("critic-data", "temperature", "max_tokens") == [1.0, 200]
    for bad in ({"learning_rate": 0}, {"warmup_ratio": 1}, {"seed": -1}, {"epochs": 3}):
        with pytest.raises(ValidationError):
            GeneratorOptions(data="d", out="o", **bad)
