"""`selfcorrect-rag calibrate`: thresholds from graded rows, what they do, and where they go."""

import json
from pathlib import Path
from typing import Any

import pytest

from selfcorrect_rag.cli import main
from selfcorrect_rag.commands.calibrate import _held_out
from selfcorrect_rag.models import T5Evaluator
from selfcorrect_rag.thresholds import Judged, Thresholds
from tests.crag_runs import WordEvaluator
from tests.providers import LOGPROBS, REFUSES, Provider
from tests.tiny_evaluators import bert, bert_tokenizer

ROWS = [
    {"question": f"Question {i}?", "positives": [right], "negatives": [wrong, "worthless"]}
    for i, (right, wrong) in enumerate(
        [("gold", "noise")] * 6 + [("gold", "vague")] * 2 + [("vague", "noise")] * 2
    )
]
"""Where the best passage is gold the retrieval is good, where it is noise bad; vague says neither:
of four retrievals with vague as their best, two are good."""


@pytest.fixture(autouse=True)
def _shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selfcorrect_rag.reader.ReaderEvaluator", lambda reader: WordEvaluator())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return written(tmp_path / "graded.jsonl", ROWS)


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def report(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    assert main(["calibrate", "--json", *options]) == 0
    return json.loads(capsys.readouterr().out)


def test_thresholds_and_what_they_do(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(capsys, "--data", str(data))
    assert found["questions"] == len(ROWS)
    assert 0 < found["thresholds"]["upper"] < 0.9
    assert -0.9 < found["thresholds"]["lower"] < 0
    assert found["counts"] == {"correct": 8, "incorrect": 8, "ambiguous": 4}
    assert found["accuracy"] == {"correct": 1.0, "incorrect": 1.0}
    assert found["action_accuracy"] == pytest.approx((16 + 4 * 0.75) / 20)


def test_what_is_expected_of_other_questions(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = report(capsys, "--data", str(data))["held_out"]
    counts = [sum(half["counts"].values()) for half in (first, second)]
    assert counts == [len(ROWS)] * 2, "each half is ten retrievals of five questions"
    # A row is the same whatever the order of the file, so the halves are too.
    again = report(capsys, "--data", str(written(data.with_name("other.jsonl"), ROWS[::-1])))
    assert again["held_out"] == [first, second]


def test_a_half_is_measured_with_the_others_thresholds() -> None:
    easy = [Judged([0.9], relevant=True), Judged([0.5], relevant=False)]
    hard = [Judged([0.3], relevant=True), Judged([-0.3], relevant=False)]
    on_hard, on_easy = _held_out([easy, hard, easy, hard], 0.75)
    assert on_hard.thresholds.upper == pytest.approx(0.7)
    assert on_hard.counts == {"correct": 0, "incorrect": 4, "ambiguous": 0}
    assert on_easy.thresholds.upper == pytest.approx(0.0)
    assert on_easy.counts == {"correct": 4, "incorrect": 0, "ambiguous": 0}


def test_a_worth_changes_how_often_it_is_ambiguous(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rash = report(capsys, "--data", str(data), "--ambiguous-worth", "0")
    assert rash["counts"]["ambiguous"] == 0
    assert rash["action_accuracy"] == pytest.approx(18 / 20)


def test_the_same_for_people(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--data", str(data)]) == 0
    shown = capsys.readouterr().out
    assert "chosen on these 10 questions, on the same:\n  action accuracy 0.950\n" in shown
    assert "Correct: 8, 100.0% of them rightly" in shown
    assert "chosen on the second half alone, on the other:" in shown


def test_one_question_says_nothing_on_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = written(tmp_path / "one.jsonl", ROWS[:1])
    assert report(capsys, "--data", str(one))["held_out"] == []
    assert main(["calibrate", "--data", str(one)]) == 0
    assert "too few questions" in capsys.readouterr().out


def test_written_thresholds_are_the_evaluators_own(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "evaluator"
    bert().save_pretrained(folder)
    bert_tokenizer().save_pretrained(folder)
    before = json.loads((folder / "config.json").read_text())
    found = report(capsys, "--evaluator", str(folder), "--data", str(data), "--write")
    own = T5Evaluator.from_pretrained(folder).thresholds
    assert own == Thresholds(**found["thresholds"])
    after = json.loads((folder / "config.json").read_text())
    assert after.pop("crag_thresholds") == [own.upper, own.lower]
    assert after == before
    assert not list(folder.glob("*.new"))


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ([{"question": "Who?"}], [], ":1: not"),
        ([{"question": "Who?", "positives": ["gold"]}], [], "relevant and irrelevant"),
        ([{"question": "Who?", "negatives": ["gold"]}], [], "relevant and irrelevant"),
        ([], [], "relevant and irrelevant"),
        (ROWS, ["--ambiguous-worth", "1.5"], "--ambiguous-worth takes 0 to 1"),
        (ROWS, ["--ambiguous-worth", "nan"], "--ambiguous-worth takes 0 to 1"),
        (ROWS, ["--write"], "--write needs --evaluator"),
        (ROWS, ["--write", "--evaluator", "google-t5/none"], "--write needs --evaluator"),
        (ROWS, ["--data", "nowhere.jsonl"], "cannot read nowhere.jsonl"),
    ],
)
def test_mistakes_are_one_line(
    rows: list[dict[str, Any]],
    options: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = written(tmp_path / "graded.jsonl", rows)
    assert main(["calibrate", "--data", str(data), *options]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert len(error.splitlines()) == 1


def golden(prompt: str) -> list[Any]:
    """Sure of gold, in doubt about what is vague, and of nothing else."""
    asked = prompt[prompt.rindex("Question:") :]
    slots = [slot.split("</document>")[0] for slot in asked.split("<document")[1:]]
    pieces: list[Any] = []
    for number, slot in enumerate(slots, start=1):
        p = 0.95 if "gold" in slot else 0.5 if "vague" in slot else 0.05
        line = [] if len(slots) == 1 else [(f"\n{number}:", 1.0)]
        pieces += [*line, (" yes", p, {" no": 1 - p})]
    return pieces


chat_model = Provider(answer=golden, **LOGPROBS)
hard_model = Provider(answer=lambda prompt: "".join(p[0] for p in golden(prompt)), **REFUSES)


def test_a_chat_model_is_calibrated_as_any_evaluator(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "tests.commands.test_calibrate:chat_model"
    found = report(capsys, "--data", str(data), "--evaluator", name)
    own = report(capsys, "--data", str(data))
    assert found["counts"] == own["counts"]
    assert found["action_accuracy"] == own["action_accuracy"]
    assert 0 < found["thresholds"]["upper"] < 0.9
    assert found["notes"] == []
    assert main(["calibrate", "--write", "--data", str(data), "--evaluator", name]) != 0
    capsys.readouterr()
    hard_name = name.replace("chat_model", "hard_model")
    assert main(["calibrate", "--data", str(data), "--evaluator", hard_name]) == 0
    assert "hard labels" in capsys.readouterr().out
