"""How a reader is calibrated: what counts as right, the fit, and the report to choose by."""

import math
import random
import re
from typing import Any

import pytest
import torch

from nano_training import export_reader
from nano_training.evaluate_reader import Measured
from nano_training.export_reader import (
    THRESHOLDS,
    _known,
    calibrated,
    fit,
    holds,
    is_right,
    raw,
    report,
)
from nano_training.reader.rows import Row
from selfcorrect_rag.reader import torch_network as network
from selfcorrect_rag.reader.torch_network import ReaderNetwork
from selfcorrect_rag.reader.reader import Passage, PassageReading, Reader, Span
from selfcorrect_rag.reader.weights import ReaderCalibration
from selfcorrect_rag.search.bert import Architecture

CALIBRATION = ReaderCalibration((0.8, -0.2), (0.7, 0.7, -0.3), (0.5, 1.2, 0.4))
"""Of a kind that leaves the order of spans as it is without calibration."""
LONG = "until the last of the old wells has run dry"


def row(*answers: str, question: str = "Who is it?") -> Row:
    return Row(question, "T", "", answers, "nq")


@pytest.mark.parametrize(
    ("said", "answers", "right"),
    [
        ("Ann Lee", ("Ann",), True),
        ("Ann", ("Ann Lee",), True),  # F1 of 2/3
        ("Ann", ("Ann Marie Lee",), False),
        ("Bo", ("Ann",), False),
        ("the last of the old wells has run dry", (LONG,), True),
        ("the last of them", (LONG,), False),
        (
            f"so it was and will be, they say of it {LONG}, as is known to one and all",
            (LONG,),
            False,
        ),
        ("", ("Ann",), False),
    ],
)
def test_a_span_that_is_right(said: str, answers: tuple[str, ...], right: bool) -> None:
    assert is_right(said, row(*answers)) == right


@pytest.mark.parametrize(
    ("sentence", "said", "answers", "held"),
    [
        ("Ann Lee left in May.", "left", ("Ann Lee",), True),
        (f"So it was {LONG}, as we know.", "dry", (LONG,), True),
        ("Ann Lee left in May.", "June", ("Bo",), False),
        ("Cut.", "Ann Lee", ("Ann Lee",), True),  # the span goes beyond it
        ("Ann left in May.", "May", ("June", "May"), True),
    ],
)
def test_a_sentence_that_holds_the_answer(
    sentence: str, said: str, answers: tuple[str, ...], held: bool
) -> None:
    assert holds(sentence, said, row(*answers)) == held


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def test_a_fit_finds_the_weights_that_made_the_labels() -> None:
    torch.manual_seed(1)
    features = torch.randn(6_000, 2) * 2
    chances = (features @ torch.tensor([1.5, -0.5]) + 0.7).sigmoid()
    found = fit(features, torch.bernoulli(chances))
    assert found == pytest.approx([1.5, -0.5, 0.7], abs=0.15)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> ReaderNetwork:
    """A narrow network that is sure of one thing or another in each window."""
    narrow = Architecture(hidden_size=16, intermediate_size=16, heads=2, layers=1)
    monkeypatch.setattr(network, "Architecture", lambda: narrow)
    torch.manual_seed(3)
    found = ReaderNetwork().eval()
    with torch.no_grad():
        found.first.weight.mul_(4)
        found.span.weight.mul_(4)
    return found


WORDS = [
    "the",
    "of",
    "mill",
    "town",
    "river",
    "was",
    "built",
    "in",
    "old",
    "stone",
    "by",
    "Ann",
    "1900",
    "bridge",
    "far",
    "long",
    "wide",
    "75",
]


def asked() -> list[tuple[str, Passage]]:
    """Questions on passages of one window and of several."""
    drawn = random.Random(2)

    def text(words: int) -> str:
        return " ".join(drawn.choice([*WORDS, "end."]) for _ in range(words))

    return [(f"What is {text(4)}?", Passage("T", text(20 + 30 * k))) for k in range(30)]


def test_a_known_reading_is_that_of_the_calibrated_reader(small: ReaderNetwork) -> None:
    plain, sure = (Reader(small, c).read(asked()) for c in (None, CALIBRATION))
    apart = 0
    for bare, known in zip(plain, sure, strict=True):
        found = _known(bare, CALIBRATION)
        assert found.spans[0].place == known.spans[0].place
        assert found.spans[0].confidence == pytest.approx(known.spans[0].confidence, abs=1e-6)
        assert found.spans[0].sentence_confidence == pytest.approx(
            known.spans[0].sentence_confidence, abs=1e-6
        )
        assert found.spans[0].confidence != pytest.approx(bare.spans[0].confidence, abs=1e-3)
        assert found.spans[1:] == bare.spans[1:]
        logit = raw(bare.spans[0])[0]
        apart += not math.isclose(sigmoid(logit), bare.relevant, rel_tol=1e-4)
    assert apart > 2  # another window than that of the span is the most relevant one


def test_a_reading_of_nothing_stays_so() -> None:
    nothing = PassageReading(0.1, (), 0)
    assert _known(nothing, CALIBRATION) == nothing


@pytest.mark.parametrize("logit", [-14.0, 0.0, 13.0])
def test_raw_values_are_those_before_the_sigmoid(logit: float) -> None:
    span = Span(
        "Ann", 0, 0.2, sigmoid(logit + math.log(0.2)), (0, 3), sigmoid(logit + math.log(0.6))
    )
    assert raw(span) == pytest.approx((logit, math.log(0.2), math.log(0.6)), rel=1e-3)


def measured(
    answer: str, said: str, text: str, sure: float, sentence: float, question: str = "Who is it?"
) -> Measured:
    """One question on one passage, with confidences before calibration of a window's logit 0."""
    at = text.index(said)
    span = Span(said, at, 0.9, sure, (0, len(text)), sentence)
    reading = PassageReading(0.5, (span,), 9)
    return Measured(row(answer, question=question), [reading], [True], [Passage("T", text)])


def shares(text: str) -> dict[float, tuple[float, float]]:
    """Right and wrong by threshold."""
    found = re.findall(r"above (\S+): (\S+) right, (\S+) wrong of all", text)
    return {float(above): (float(right), float(wrong)) for above, right, wrong in found}


def test_the_report_counts_what_is_stated(capsys: pytest.CaptureFixture[str]) -> None:
    some = [
        measured("Ann", "Ann", "Ann left.", 0.42, 0.0),
        measured("Bo", "Cy", "Cy left.", 0.62, 0.0),
        # Only the sentence is sure, and holds the long answer word for word.
        measured(
            LONG, "dry", f"They wait and wait, as they have done {LONG}, all of it.", 0.05, 0.32
        ),
        measured("Di", "Di", "Di left.", 0.05, 0.0),
    ]
    report(some, ReaderCalibration())
    found = shares(capsys.readouterr().out)
    assert list(found) == THRESHOLDS
    assert found[0.3] == (0.5, 0.25)
    assert found[0.35] == found[0.4] == (0.25, 0.25)
    assert found[0.45] == found[0.6] == (0.0, 0.25)
    assert found[0.65] == (0.0, 0.0)


def test_the_report_is_on_calibrated_confidences(capsys: pytest.CaptureFixture[str]) -> None:
    some = [measured("Ann", "Ann", "Ann left.", 0.42, 0.0)]
    report(some, ReaderCalibration(answer=(1.0, 1.0, 2.0)))
    # sigmoid(logit(0.42) + 2) = 0.84
    assert shares(capsys.readouterr().out)[0.75] == (1.0, 0.0)
    report(some, ReaderCalibration(answer=(1.0, 1.0, 0.0), sentence=(0.0, 0.0, 2.0)))
    found = shares(capsys.readouterr().out)
    assert found[0.4] == found[0.75] == (1.0, 0.0)  # the sentence is sure


class Scripted:
    """A reader that says what is written down for a question and a text."""

    def __init__(self, said: dict[tuple[str, str], PassageReading]) -> None:
        self.said = said

    def read(self, asked: list[tuple[str, Passage]]) -> list[PassageReading]:
        return [self.said[question, passage.text] for question, passage in asked]


def scripted(text: str, said: str, *logits: float) -> PassageReading:
    """From the logits of passage and window, and the probabilities of span and sentence."""
    relevant, window, p, mass = logits
    at = text.index(said)
    confidences = sigmoid(window + math.log(p)), sigmoid(window + math.log(mass))
    span = Span(said, at, p, confidences[0], (0, len(text)), confidences[1])
    return PassageReading(sigmoid(relevant), (span,), 9)


def test_calibration_is_fitted_on_retrieved_and_gold_passages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether a passage states the answer, the span is right, and the sentence has it."""
    retrieved = {"who?": ["Ann left.", ""], "when?": ["Bo left in May.", "In May or June it was."]}
    said = {
        ("who?", "Ann left."): scripted("Ann left.", "Ann", 3.0, 2.0, 0.4, 0.5),
        ("who?", ""): PassageReading(0.1, (), 0),
        ("who?", "By Ann."): scripted("By Ann.", "By", 2.5, 2.5, 0.3, 0.7),
        ("when?", "Bo left in May."): scripted("Bo left in May.", "Bo", -1.0, -2.0, 0.2, 0.6),
        ("when?", "In May or June it was."): scripted(
            "In May or June it was.", "May", 1.0, 0.5, 0.1, 0.9
        ),
        ("when?", "In June."): scripted("In June.", "June", 4.0, 4.0, 0.8, 0.8),
    }

    class Pool:
        def __init__(self, rows: list[Row]) -> None:
            assert rows == asked

        def retrieve(self, questions: list[str]) -> list[list[Passage]]:
            return [[Passage("", text) for text in retrieved[q]] for q in questions]

    fits: list[tuple[list[list[float]], list[float]]] = []

    def fitted(features: torch.Tensor, labels: torch.Tensor) -> list[float]:
        fits.append((features.tolist(), labels.tolist()))
        return [float(len(fits) + k / 10) for k in range(features.shape[1] + 1)]

    asked = [
        Row("who?", "", "By Ann.", ("Ann",), "nq"),
        Row("when?", "", "In June.", ("June",), "nq"),
    ]
    monkeypatch.setattr(export_reader, "Pool", Pool)
    monkeypatch.setattr(export_reader, "fit", fitted)
    reader: Any = Scripted(said)
    found = calibrated(reader, asked)
    assert found[:3] == ((1.0, 1.1), (2.0, 2.1, 2.2), (3.0, 3.1, 3.2))
    passage, span, sentence = fits
    # Ann left; Bo left; May or June; By Ann; In June.
    assert passage[0] == [pytest.approx([x], rel=1e-4) for x in (3.0, -1.0, 1.0, 2.5, 4.0)]
    windows = (2.0, -2.0, 0.5, 2.5, 4.0)
    for features, values in (
        (span[0], (0.4, 0.2, 0.1, 0.3, 0.8)),
        (sentence[0], (0.5, 0.6, 0.9, 0.7, 0.8)),
    ):
        wanted = [[w, math.log(p)] for w, p in zip(windows, values, strict=True)]
        assert features == [pytest.approx(pair, rel=1e-4) for pair in wanted]
    assert passage[1] == [1, 0, 1, 1, 1]
    assert span[1] == [1, 0, 0, 0, 1]
    assert sentence[1] == [1, 0, 1, 1, 1]


def test_thresholds_are_for_calibrated_grades(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits above 3 state the answer, below 1 do not; the fit halves them, less 2."""
    texts = [f"Ann {k}." if k % 2 else f"Bo {k}." for k in range(40)]
    said = {
        (text, text): scripted(text, text, *([3.5 if "Ann" in text else 0.5] * 2), 0.5, 0.6)
        for text in texts
    }

    class Pool:
        def __init__(self, rows: list[Row]) -> None:
            pass

        def retrieve(self, questions: list[str]) -> list[list[Passage]]:
            return [[Passage("", question)] for question in questions]

    monkeypatch.setattr(export_reader, "Pool", Pool)
    monkeypatch.setattr(
        export_reader, "fit", lambda features, labels: [0.5, -2.0, 0.0][: features.shape[1] + 1]
    )
    reader: Any = Scripted(said)
    upper, lower = calibrated(
        reader, [Row(text, "", text, ("Ann",), "nq") for text in texts]
    ).thresholds
    high, low = (2 * sigmoid(logit / 2 - 2) - 1 for logit in (3.5, 0.5))
    assert lower <= upper
    assert low < upper <= high
    assert low <= lower <= high
