"""How a reader is measured: figures by hand, and reports on readings that are written down."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from nano_training import evaluate_reader
from nano_training.evaluate_reader import (
    Measured,
    answers,
    best,
    exact,
    f1,
    for_calibration,
    held_out_rows,
    interval,
    main,
    normal,
    open_reader,
    report_gold,
    report_retrieved,
    with_gold,
    with_retrieved,
)
from nano_training.reader.rows import NQ_HELD_OUT, Row, Split, drawn
from selfcorrect_rag.reader import torch_network as network
from selfcorrect_rag.reader.answers import Answer
from selfcorrect_rag.reader.torch_network import ReaderNetwork
from selfcorrect_rag.reader.reader import Passage, PassageReading, Span
from selfcorrect_rag.reader.weights import ReaderCalibration
from selfcorrect_rag.search.bert import Architecture


def reading(
    answer: str, confidence: float, relevant: float = 0.5, sentence: float = 0.0
) -> PassageReading:
    """A passage that begins with its answer; its sentence is the passage, or its first line."""
    first = Span(answer, 0, 0.5, confidence, (0, len(answer)), sentence)
    other = Span("other", 0, 0.1, 0.99, (0, 5), 0.99)
    return PassageReading(relevant, (first, other), 9)


NOTHING = PassageReading(0.1, (), 0)


def row(*answers: str, question: str = "Who?", source: str = "nq") -> Row:
    return Row(question, "T", "A passage.", answers, source)


def measured(asked: Row, readings: list[PassageReading], states: list[bool]) -> Measured:
    """Readings with passages of their first spans alone."""
    passages = [Passage("T", r.spans[0].text if r.spans else "") for r in readings]
    return Measured(asked, readings, states, passages)


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


def test_the_best_is_what_the_surest_passage_says() -> None:
    assert best([Answer("a", 0.2), Answer("b", 0.7), Answer("c", 0.4)]) == ("b", 0.7)
    assert best([]) == ("", 0.0)


def test_each_passage_says_its_first_span() -> None:
    asked = measured(row("x"), [reading("a", 0.2), NOTHING, reading("b", 0.7)], [True] * 3)
    assert answers(asked, 0.5) == [("a", 0.2), ("", 0.0), ("b", 0.7)]
    assert best(answers(asked, 0.5)) == ("b", 0.7)


def test_answers_are_those_that_the_reader_states() -> None:
    """The sentence where only that is sure, and where it is asked for."""
    text = "Ask Ida Berg first. Then wait."
    span = Span("Ida Berg", 4, 0.5, 0.3, (0, 19), 0.6)
    found = PassageReading(0.5, (span,), 9)

    def said(question: str, threshold: float) -> Answer:
        passages = [Passage("T", text)]
        [answer] = answers(
            Measured(row("x", question=question), [found], [True], passages), threshold
        )
        return answer

    assert said("Whom do I ask?", 0.5) == ("Ask Ida Berg first.", 0.6)
    assert said("Whom do I ask?", 0.7) == ("Ida Berg", 0.3)
    assert said("Whom do I ask?", 0.2) == ("Ida Berg", 0.3)
    assert said("How do I begin?", 0.7) == ("Ask Ida Berg first.", 0.6)


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """Rows that are set aside, of two sets with an answer and of one without."""
    rows = [row("q", question=f"q{k}?", source="qed") for k in range(40)]
    rows += [row("w", question=f"w{k}?", source="written: notes") for k in range(40)]
    silent = [row(question=f"silent {k}", source="written: notes") for k in range(9)]
    monkeypatch.setattr(evaluate_reader, "real_rows", lambda: Split([row("t")], rows[:40]))
    held_out = Split([row("t")], [*rows[40:], *silent])
    monkeypatch.setattr(evaluate_reader, "written_rows", lambda: held_out)
    return rows


def test_held_out_rows_are_answerable_ones_of_real_and_written_sets(sets: list[Row]) -> None:
    assert held_out_rows() == sets


def test_the_command_measures_each_set_that_is_there(
    sets: list[Row], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader: Any = Remembering()
    stated = row("passage", question="p1?", source="popqa")
    silent = row("p", question="p2?", source="popqa")
    monkeypatch.setattr(evaluate_reader, "open_reader", lambda path: reader)
    monkeypatch.setattr(evaluate_reader, "popqa", lambda: [stated, silent])
    monkeypatch.setattr(evaluate_reader, "musique_hops", lambda: [row("m", question="m?")])
    monkeypatch.setattr(evaluate_reader, "hotpotqa", lambda: [row("h", question="h?")])
    pooled: list[Row] = []
    monkeypatch.setattr(evaluate_reader, "Pool", lambda rows: pooled.extend(rows) or TwoPassages())
    monkeypatch.setattr("sys.argv", ["evaluate_reader", "--most", "12"])
    main()
    said = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert [name for name in said if name] == [
        *("qed", "written: notes", "popqa", "musique"),
        *(name for name in ("qed", "popqa", "hotpotqa", "musique") for _ in range(2)),
    ]
    assert pooled == for_calibration(sets, kept=False)
    asked = Counter(question for question, _ in reader.asked)
    assert asked["p1?"] == 3  # its own page, and two that are retrieved
    assert asked["p2?"] == 2  # its page does not state the answer
    assert sum(number for question, number in asked.items() if question[0] == "q") == 12 + 24
    assert not set(asked) & {row.question for row in for_calibration(sets)}


def test_calibration_and_measuring_share_no_question() -> None:
    rows = [row("x", question=f"question {k}") for k in range(400)]
    fitted, measured = for_calibration(rows), for_calibration(rows, kept=False)
    assert sorted([*fitted, *measured]) == sorted(rows)
    aside = [row for row in rows if drawn(row.question, NQ_HELD_OUT)]
    assert 0.3 < sum(row in fitted for row in aside) / len(aside) < 0.7
    assert 160 < len(fitted) < 240


class Remembering:
    """A reader that finds a passage's first word."""

    calibration = ReaderCalibration()

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
    [found] = with_gold(reader, [row("A")])
    assert reader.asked == [("Who?", Passage("T", "A passage."))]
    assert found == Measured(row("A"), [reading("A", 0.5)], [True], [Passage("T", "A passage.")])


def test_retrieved_passages_stay_with_their_question() -> None:
    reader: Any = Remembering()
    pool: Any = TwoPassages()
    rows = [row("q", question="q?"), row("zoe", question="r?"), row("no", question="s?")]
    found = with_retrieved(reader, rows, pool)
    assert [m.row for m in found] == rows
    assert [[a.text for a in answers(m, 0.2)] for m in found] == [
        ["q", "nothing"],
        ["r", "nothing"],
        ["s", "nothing"],
    ]
    assert [m.states for m in found] == [[True, False], [False, True], [False, False]]
    assert [[p.title for p in m.passages] for m in found] == [["Page", "Zoe"]] * 3


def test_the_report_on_gold_passages(capsys: pytest.CaptureFixture[str]) -> None:
    some = [
        measured(row("Ann Lee"), [reading("Ann Lee", 0.9, relevant=0.9)], [True]),
        measured(row("Bo"), [reading("Bo Berg", 0.9, relevant=0.4)], [True]),
        measured(row("Cy"), [NOTHING], [True]),
        measured(row("Di"), [reading("Ann", 0.9, relevant=0.6)], [True]),
    ]
    report_gold("set", some)
    said = capsys.readouterr().out
    exactly, _, _, shared, _, _, contained, _, _, relevant = numbers(said)
    assert said.startswith("set               4  exact")
    assert (exactly, contained, relevant) == (0.25, 0.5, 0.5)
    assert shared == pytest.approx((1 + 2 / 3) / 4, abs=0.001)


def test_the_report_on_retrieved_passages(capsys: pytest.CaptureFixture[str]) -> None:
    some = [
        # Chosen rightly from the second passage.
        measured(row("a"), [reading("x", 0.3, 0.3), reading("a", 0.8, 0.9)], [False, True]),
        # The first passage says it, the second one is surer.
        measured(row("b"), [reading("b", 0.6, 0.8), reading("x", 0.7, 0.6)], [True, False]),
        # Right, but too unsure to be stated.
        measured(row("c"), [reading("c", 0.2, 0.7), NOTHING], [True, False]),
        # No passage states it: refused, and answered wrongly.
        measured(row("d"), [reading("x", 0.1, 0.2), NOTHING], [False, False]),
        measured(row("e"), [reading("x", 0.9, 0.75), NOTHING], [False, False]),
    ]
    report_retrieved("set", some, 0.5)
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


def test_a_report_where_a_passage_has_nothing_to_read(capsys: pytest.CaptureFixture[str]) -> None:
    some = [
        measured(row("a"), [NOTHING, reading("a", 0.8, 0.9)], [True, False]),
        measured(row("a"), [NOTHING, NOTHING], [True, False]),
    ]
    report_retrieved("set", some, 0.5)
    right, _, _, by_first, _, _, among, *_ = numbers(capsys.readouterr().out)
    assert (right, by_first, among) == (0.5, 0.0, 0.5)


def test_a_sentence_that_is_stated_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """Its span is wrong and unsure, and the sentence has the answer."""
    span = Span("Ida", 4, 0.5, 0.3, (0, 19), 0.6)
    passages = [Passage("T", "Ask Ida Berg first."), Passage("T", "")]
    readings = [PassageReading(0.5, (span,), 9), NOTHING]
    some = [Measured(row("Berg"), readings, [True, False], passages)]
    report_retrieved("set", some, 0.5)
    correct, _, _, wrong, *_ = numbers(capsys.readouterr().out.splitlines()[1])
    assert (correct, wrong) == (1.0, 0.0)
    report_retrieved("set", some, 0.7)
    correct, _, _, wrong, *_ = numbers(capsys.readouterr().out.splitlines()[1])
    assert (correct, wrong) == (0.0, 0.0)


def test_a_checkpoint_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = Architecture(layers=1, intermediate_size=16)
    monkeypatch.setattr(network, "Architecture", lambda: small)
    monkeypatch.setattr(evaluate_reader, "pretrained", ReaderNetwork)
    trained = ReaderNetwork()
    torch.save({"network": trained.state_dict(), "step": 7}, tmp_path / "checkpoint.pt")
    opened = open_reader(tmp_path / "checkpoint.pt").network
    assert not opened.training
    for name, values in opened.state_dict().items():
        assert torch.equal(values, trained.state_dict()[name])
