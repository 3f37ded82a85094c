"""Labels by a language model: asked once, journaled at once, resumable; failures are kept apart."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from selfcorrect_rag.errors import BadRun, EngineFailed
from selfcorrect_rag.journal import run_folder
from selfcorrect_rag.prompts.critic import CRITIQUE_PROMPTS
from selfcorrect_rag.training import labelling
from selfcorrect_rag.training.critic import CriticDataOptions, CriticInstance, label_critic_data
from selfcorrect_rag.training.rows import read_rows
from tests.training.toys import Teacher, instances, label, lines, options, write


@pytest.fixture(autouse=True)
def _one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labelling, "MAX_TRIES", 1)


def make(folder: Path, teacher: Teacher, number: int = 12, **given: Any) -> dict[str, Any]:
    made = options(CriticDataOptions, folder, instances(number), **given)
    return label_critic_data(made, teacher.model)


def test_rows_have_the_official_fields(tmp_path: Path) -> None:
    report = make(tmp_path, Teacher())
    rows = lines(tmp_path / "out")
    numbers = {"retrieval": 12, "multi_retrieval": 6, "relevance": 6, "groudness": 6, "utility": 12}
    assert [row["task"] for row in rows] == [name for name, n in numbers.items() for _ in range(n)]
    first = rows[0]
    names = ["key", "group", "task", "part", "instruction", "input", "output", "token"]
    assert list(first) == names
    assert first["instruction"] == CRITIQUE_PROMPTS["retrieval"].instructions
    assert first["input"] == "Task instruction: Who wrote book 0?"
    assert first["output"] == first["token"] in ("[Retrieval]", "[No Retrieval]")
    assert (report["labelled"], report["malformed"], report["failed"]) == (42, 0, 0)
    assert sum(report["tokens"].values()) == 42


def test_a_killed_run_asks_only_what_is_missing(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    make(whole, teacher := Teacher())
    first = Teacher()
    first.limit = 10
    with pytest.raises(KeyboardInterrupt):
        make(cut, first, max_concurrency=1)
    assert not (cut / "out").exists()
    journal = run_folder(cut / "out") / "labels.jsonl"
    assert len(lines(journal)) == 10
    with journal.open("a") as file:
        file.write('{"key": "torn')
    make(cut, second := Teacher())
    assert len(second.asked) == len(teacher.asked) - 10
    assert (cut / "out").read_bytes() == (whole / "out").read_bytes()
    make(cut, third := Teacher(), number=14)
    assert len(third.asked) == 7, "of two more rows"
    make(cut, fourth := Teacher())
    assert fourth.asked == []
    assert (cut / "out").read_bytes() == (whole / "out").read_bytes(), "only the given rows"


def test_what_was_malformed_or_failed_is_asked_again(tmp_path: Path) -> None:
    def answer(prompt: str) -> str:
        if "book 7" in prompt:
            raise TimeoutError("no answer")
        return label(prompt, essays=True)

    report = make(tmp_path, Teacher(answer), number=40)
    assert report["malformed"] > 0
    assert report["failed"] == 5
    failures = lines(run_folder(tmp_path / "out") / "failures.jsonl")
    assert {row["reason"] for row in failures} == {"malformed", "TimeoutError: no answer"}
    assert "It depends" in str(failures)
    assert len(lines(tmp_path / "out")) == report["labelled"]
    report = make(tmp_path, again := Teacher(), number=40)
    assert len(again.asked) == len(failures)
    assert not (run_folder(tmp_path / "out") / "failures.jsonl").exists()
    assert (report["malformed"], report["failed"]) == (0, 0)


def test_a_model_that_fails_again_and_again_ends_the_run(tmp_path: Path) -> None:
    teacher = Teacher(lambda prompt: label(prompt) if len(teacher.asked) < 10 else 1 / 0)
    with pytest.raises(EngineFailed, match=r"20 requests in a row failed, .*zero; the same com"):
        make(tmp_path, teacher, number=60, max_concurrency=1)
    assert len(lines(run_folder(tmp_path / "out") / "labels.jsonl")) == 9
    patchy = Teacher(lambda prompt: 1 / 0 if len(patchy.asked) % 4 else label(prompt))
    report = make(tmp_path / "patchy", patchy, max_concurrency=1)
    assert report["failed"] == 32, "of 42, three in a row"


def test_a_call_is_tried_several_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(labelling, "MAX_TRIES", 2)
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    failing = Teacher(lambda prompt: 1 / 0 if len(failing.asked) % 2 else label(prompt))
    report = make(tmp_path, failing, number=1, max_concurrency=1)
    assert report["failed"] == 0


def test_usage_is_that_of_the_model(tmp_path: Path) -> None:
    usage: Any = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    answers = AIMessage("[Yes]", usage_metadata=usage, response_metadata={"model_name": "m"})
    made = options(CriticDataOptions, tmp_path, [{"instruction": "Who?"}])
    report = label_critic_data(made, GenericFakeChatModel(messages=iter([answers])))
    assert report["usage"]["m"]["input_tokens"] == 10


def test_a_run_has_one_place_and_one_set_of_options(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("words")
    with pytest.raises(BadRun, match="was not made by this command"):
        make(tmp_path, Teacher())
    (tmp_path / "out").unlink()
    make(tmp_path, Teacher())
    with pytest.raises(BadRun, match=r"other settings \(temperature\)"):
        make(tmp_path, Teacher(), temperature=0.5)
    make(tmp_path, Teacher(), max_concurrency=1)


def test_fields_of_an_instance(tmp_path: Path) -> None:
    file = write(
        tmp_path / "rows",
        {"instruction": "a", "output": "b", "target_output": None},
        {"instruction": "a", "output": "b c", "target_output": "c", "preceding_sentences": "b "},
        {"instruction": "a", "output": "c", "preceding_sentences": "b "},
    )
    found = [row.instance for row in read_rows(file, CriticInstance)]
    read = [(instance.segment, instance.output) for instance in found]
    assert read == [("b", "b"), ("c", "b c"), ("c", "")]
