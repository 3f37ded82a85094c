"""How a reader is measured: figures by hand, and reports on readings that are written down."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from nano_training import evaluate_reader
from nano_training.evaluate_reader import (
    Measured,
    best,
    exact,
    f1,
    for_calibration,
    interval,
    normal,
    open_reader,
    report_gold,
    report_retrieved,
    with_gold,
    with_retrieved,
)
from nano_training.reader.rows import NQ_HELD_OUT, Row, drawn
from selfcorrect_rag.reader import network
from selfcorrect_rag.reader.network import ReaderNetwork
from selfcorrect_rag.reader.reader import Passage, PassageReading, Span


def reading(answer: str, confidence: float, relevant: float = 0.5) -> PassageReading:
    spans = (Span(answer, 0, 0.5, confidence), Span("other", 0, 0.1, 0.99))
    return PassageReading(relevant, spans, 9)


NOTHING = PassageReading(0.1, (), 0)


def row(*answers: str, question: str = "Who?") -> Row:
    return Row(question, "T", "A passage.", answers, "nq")


def test_normal_form_is_that_of_squad() -> None:
    assert normal(" The  U.S. Army, a big-one; an Ant") == "us army bigone ant"
    assert normal("theatre") == "theatre"


def test_exact() -> None:
    assert exact("The Beatles!", ["Queen", "beatles"]) == 1
    assert exact("Beatles songs", ["beatles"]) == 0
    assert exact("", ["beatles"]) == 0


@pytest.mark.parametrize(
    ("said", "answers", "score"),
    [
        ("Ann Lee", ["Ann Lee"], 1),
        ("Ann Lee Smith", ["the Ann Lee"], 2 * 2 / 5),
        ("Ann", ["Bo", "Ann Lee"], 2 / 3),
        ("Ann", ["Bo"], 0),
        ("so so so", ["so so"], 2 * 2 / 5),
        ("", ["Bo"], 0),
    ],
)
def test_f1(said: str, answers: list[str], score: float) -> None:
    assert f1(said, answers) == pytest.approx(score)


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?\d+\.\d{3}", text)]


def test_interval() -> None:
    assert interval([1.0] * 50) == "1.000 [1.000, 1.000]"
    mean, low, high = numbers(interval([1.0] * 30 + [0.0] * 70))
    assert mean == 0.3
    # 0.3 +- 1.96 * (0.3 * 0.7 / 100) ** 0.5
    assert low == pytest.approx(0.21, abs=0.02)
    assert high == pytest.approx(0.39, abs=0.02)
    assert interval([0.0, 1.0, 1.0]) == interval([0.0, 1.0, 1.0])


def test_the_best_is_the_first_span_of_the_surest_passage() -> None:
    assert best([reading("a", 0.2), NOTHING, reading("b", 0.7), reading("c", 0.4)]) == ("b", 0.7)
    assert best([NOTHING]) == ("", 0.0)
    assert best([]) == ("", 0.0)


def test_calibration_and_measuring_share_no_question() -> None:
    rows = [row("x", question=f"question {k}") for k in range(400)]
    fitted, measured = for_calibration(rows), for_calibration(rows, kept=False)
    assert sorted([*fitted, *measured]) == sorted(rows)
    aside = [row for row in rows if drawn(row.question, NQ_HELD_OUT)]
    assert 0.3 < sum(row in fitted for row in aside) / len(aside) < 0.7
    assert 160 < len(fitted) < 240


class Remembering:
    """A reader that finds a passage's first word."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Passage]] = []

    def read(self, asked: list[tuple[str, Passage]]) -> list[PassageReading]:
        self.asked += asked
        return [reading(passage.text.split()[0], 0.5) for _, passage in asked]


class TwoPassages:
    """A pool that has the question's letter, and none, for each question."""

    def retrieve(self, questions: list[str]) -> list[list[Passage]]:
        return [[Passage("Page", f"{q[0]} is it"), Passage("Zoe", "nothing")] for q in questions]


def test_the_gold_passage_is_read() -> None:
    reader: Any = Remembering()
    [measured] = with_gold(reader, [row("A")])
    assert reader.asked == [("Who?", Passage("T", "A passage."))]
    assert measured == Measured(row("A"), [reading("A", 0.5)], [True])


def test_retrieved_passages_stay_with_their_question() -> None:
    reader: Any = Remembering()
    pool: Any = TwoPassages()
    rows = [row("q", question="q?"), row("zoe", question="r?"), row("no", question="s?")]
    measured = with_retrieved(reader, rows, pool)
    assert [m.row for m in measured] == rows
    assert [best(m.readings[:1])[0] for m in measured] == ["q", "r", "s"]
    assert [m.states for m in measured] == [[True, False], [False, True], [False, False]]


def test_the_report_on_gold_passages(capsys: pytest.CaptureFixture[str]) -> None:
    measured = [
        Measured(row("Ann Lee"), [reading("Ann Lee", 0.9, relevant=0.9)], [True]),
        Measured(row("Bo"), [reading("Bo Berg", 0.9, relevant=0.4)], [True]),
        Measured(row("Cy"), [NOTHING], [True]),
        Measured(row("Di"), [reading("Ann", 0.9, relevant=0.6)], [True]),
    ]
    report_gold("set", measured)
    said = capsys.readouterr().out
    exactly, _, _, shared, _, _, contained, _, _, relevant = numbers(said)
    assert said.startswith("set               4  exact")
    assert (exactly, contained, relevant) == (0.25, 0.5, 0.5)
    assert shared == pytest.approx((1 + 2 / 3) / 4, abs=0.001)


def test_the_report_on_retrieved_passages(capsys: pytest.CaptureFixture[str]) -> None:
    measured = [
        # Chosen rightly from the second passage.
        Measured(row("a"), [reading("x", 0.3, 0.3), reading("a", 0.8, 0.9)], [False, True]),
        # The first passage says it, the second one is surer.
        Measured(row("b"), [reading("b", 0.6, 0.8), reading("x", 0.7, 0.6)], [True, False]),
        # Right, but too unsure to be stated.
        Measured(row("c"), [reading("c", 0.2, 0.7), NOTHING], [True, False]),
        # No passage states it: refused, and answered wrongly.
        Measured(row("d"), [reading("x", 0.1, 0.2), NOTHING], [False, False]),
        Measured(row("e"), [reading("x", 0.9, 0.75), NOTHING], [False, False]),
    ]
    report_retrieved("set", measured, 0.5)
    said = capsys.readouterr().out
    first, second = said.splitlines()
    assert first.startswith("set               5, 3 with a passage that states it")
    right, _, _, by_first, _, _, among, _, _, gain, _, _ = numbers(first)
    assert (right, by_first, among, gain) == (0.667, 0.667, 1.0, 0.0)
    correct, _, _, wrong, _, _, refused, area = numbers(second)
    assert (correct, wrong) == (0.2, 0.4)
    assert "0.500 of 2 unstated" in second
    assert refused == 0.5
    # Of 3 x 7 pairs: 0.9 is above all, 0.8 above all, 0.7 below 0.75.
    assert area == pytest.approx(20 / 21, abs=0.001)


def test_a_checkpoint_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {**network.ARCHITECTURE, "num_hidden_layers": 1, "intermediate_size": 16}
    monkeypatch.setattr(network, "ARCHITECTURE", small)
    monkeypatch.setattr(evaluate_reader, "pretrained", ReaderNetwork)
    trained = ReaderNetwork()
    torch.save({"network": trained.state_dict(), "step": 7}, tmp_path / "checkpoint.pt")
    opened = open_reader(tmp_path / "checkpoint.pt").network
    assert not opened.training
    for name, values in opened.state_dict().items():
        assert torch.equal(values, trained.state_dict()[name])
