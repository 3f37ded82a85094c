"""Labels by a language model: asked once, journaled at once, resumable; failures are kept apart."""

import random
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.errors import BadRun, BadTrainingData, EngineFailed
from selfcorrect_rag.journal import run_folder
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.training import labelling
from selfcorrect_rag.training.critic_data import (
    CriticDataOptions,
    label_critic_data,
    read_critic_rows,
    read_instances,
)
from tests.training.toys import Teacher, instances, label, lines, write

OPTIONS = CriticDataOptions(model="teacher")


@pytest.fixture(autouse=True)
def _one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelling, "MAX_TRIES", 1)


def make(out: Path, teacher: Teacher, number: int = 12, **options: Any) -> dict[str, Any]:
    return label_critic_data(
        teacher.model, instances(number), out, OPTIONS.model_copy(update=options)
    )


def test_rows_have_the_official_fields(tmp_path: Path) -> None:
    report = make(tmp_path / "labels", Teacher())
    rows = lines(tmp_path / "labels")
    assert [row["task"] for row in rows] == [
        *["retrieval"] * 12,
        *["multi_retrieval"] * 6,
        *["relevance"] * 6,
        *["groudness"] * 6,
        *["utility"] * 12,
    ]
    first = rows[0]
    assert list(first) == [
        *("key", "group", "task", "part", "instruction", "input"),
        *("output", "token", "explanation"),
    ]
    assert first["instruction"] == CRITIQUE_PROMPTS["retrieval"].instructions
    assert first["input"] == "Task instruction: Who wrote book 0?"
    assert first["output"] == first["token"] in ("[Retrieval]", "[No Retrieval]")
    assert first["explanation"].startswith("It is number")
    assert report["outcomes"]["Retrieve"] == {"labelled": 18, "malformed": 0, "failed": 0}
    assert sum(report["tokens"]["ISUSE"].values()) == 12
    assert (report["calls"], report["input_tokens"], report["output_tokens"]) == (42, 420, 84)
    read = read_critic_rows(tmp_path / "labels")
    random.Random(0).shuffle(rows)
    assert read_critic_rows(write(tmp_path / "shuffled", *rows)) == read, "the rows decide"
    assert read[0].critic_input.group in report["outcomes"]


def test_a_killed_run_asks_only_what_is_missing(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    make(whole, teacher := Teacher())
    cut, first = tmp_path / "cut", Teacher()
    first.limit = 10
    with pytest.raises(KeyboardInterrupt):
        make(cut, first, max_concurrency=1)
    assert not cut.exists()
    journal = run_folder(cut) / "labels.jsonl"
    kept = len(lines(journal))
    assert 0 < kept <= 10
    with journal.open("a") as file:
        file.write('{"key": "torn')
    second = Teacher()
    make(cut, second)
    assert len(second.asked) == len(teacher.asked) - kept
    assert cut.read_bytes() == whole.read_bytes()
    make(cut, third := Teacher(), number=14)
    assert len(third.asked) == 7, "of two more rows"
    make(cut, fourth := Teacher())
    assert fourth.asked == []
    assert cut.read_bytes() == whole.read_bytes(), "only the given rows"


def test_malformed_answers_are_asked_for_again_then_settled(tmp_path: Path) -> None:
    out, teacher = tmp_path / "labels", Teacher(lambda prompt: label(prompt, essays=True))
    report = make(out, teacher, number=40)
    malformed = sum(of["malformed"] for of in report["outcomes"].values())
    failures = lines(run_folder(out) / "failures.jsonl")
    assert 0 < malformed == len(failures)
    assert all(row["reason"] == "malformed" and len(row["answers"]) == 2 for row in failures)
    assert len(teacher.asked) == len(set(teacher.asked)) + malformed
    make(out, again := Teacher(), number=40)
    assert again.asked == []


def test_a_call_that_raises_is_made_again_by_the_next_run(tmp_path: Path) -> None:
    def answer(prompt: str) -> str:
        if "book 3?" in prompt:
            raise TimeoutError("no answer")
        return label(prompt)

    out = tmp_path / "labels"
    report = make(out, Teacher(answer))
    assert sum(of["failed"] for of in report["outcomes"].values()) == 5
    assert "no answer" in lines(run_folder(out) / "failures.jsonl")[0]["reason"]
    report = make(out, teacher := Teacher())
    assert len(teacher.asked) == 5
    assert sum(of["failed"] for of in report["outcomes"].values()) == 0
    assert not (run_folder(out) / "failures.jsonl").exists()


def test_a_model_that_is_gone_ends_the_run(tmp_path: Path) -> None:
    def answer(prompt: str) -> str:
        if len(teacher.asked) > 9:  # asked before this one
            raise ConnectionError("refused")
        return label(prompt)

    teacher = Teacher(answer)
    with pytest.raises(EngineFailed, match=r"20 requests in a row failed, .*refused; the same com"):
        make(tmp_path / "labels", teacher, number=60, max_concurrency=1)
    assert len(lines(run_folder(tmp_path / "labels") / "labels.jsonl")) == 9


def test_a_call_is_tried_several_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(labelling, "MAX_TRIES", 2)
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    failing = Teacher(lambda prompt: 1 / 0 if len(failing.asked) % 2 else label(prompt))
    report = make(tmp_path / "labels", failing, number=1, max_concurrency=1)
    assert {of["failed"] for of in report["outcomes"].values()} == {0}


def test_a_run_has_one_place_and_one_set_of_options(tmp_path: Path) -> None:
    (tmp_path / "foreign").write_text("words")
    with pytest.raises(BadRun, match="was not made by this command"):
        make(tmp_path / "foreign", Teacher())
    make(tmp_path / "labels", Teacher())
    with pytest.raises(BadRun, match=r"other settings \(temperature\)"):
        make(tmp_path / "labels", Teacher(), temperature=0.5)
    make(tmp_path / "labels", Teacher(), max_concurrency=1)
    with pytest.raises(BadTrainingData, match="needed to judge relevance"):
        make(tmp_path / "other", Teacher(), number=1, prompts=("relevance",))
    with pytest.raises(ValueError, match="no prompt isrel; there are"):
        CriticDataOptions(model="m", prompts=("isrel",))


def test_samples_and_costs(tmp_path: Path) -> None:
    out, teacher = tmp_path / "labels", Teacher()
    few = make(out, teacher, prompts=("utility",), max_samples=4)
    assert few["calls"] == 4
    first = list(teacher.asked)
    cost = make(out, teacher, prompts=("utility",), max_samples=6, estimate=True)
    assert cost["calls"] == 2
    assert cost["input_tokens"] == pytest.approx(2 * len(first[0]) / 4, rel=0.1)
    assert teacher.asked == first, "estimating calls nothing"
    make(out, teacher, prompts=("utility",), max_samples=6)
    assert len(set(teacher.asked)) == 6, "a larger sample contains the smaller"


def test_fields_of_an_instance(tmp_path: Path) -> None:
    file = write(
        tmp_path / "rows",
        {"instruction": "a", "output": "b", "target_output": None},
        {"instruction": "a", "output": "b c", "target_output": "c", "preceding_sentences": "b "},
        {"instruction": "a", "output": "c", "preceding_sentences": "b "},
    )
    read = [(i.segment, i.output) for i in read_instances(file)]
    assert read == [("b", "b"), ("c", "b c"), ("c", "")]
