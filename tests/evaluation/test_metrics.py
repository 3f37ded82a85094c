"""Metrics against values computed by hand, in both forms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation.metrics import (
    METRICS,
    contains_answer,
    default_metrics,
    find_option,
    normalise,
    score,
)
from selfcorrect_rag.evaluation.tasks import Outcome, Question

FAILED = Outcome("1", "m", "Ada", error="down")
REFUSED = Outcome("1", "m", "Ada? I do not know.", refused=True)
SHORT = [name for name in METRICS if name != "str_em"]


def both(metric: str, question: Question, outcome: Outcome) -> tuple[float | None, float | None]:
    rows = [(question, outcome)]
    return score(rows, metric, "official").value, score(rows, metric, "strict").value


@pytest.mark.parametrize(
    ("metric", "answers", "answer", "official", "strict"),
    [
        ("match", ["true"], "True", 0, 1),  # the script compares by case
        ("match", ["no"], "I know", 1, 0),  # ... and finds parts of words
        ("match", ["true"], "It SUPPORTS that", 1, 0),  # ... and replaces labels
        ("match", ["U.S."], "the US army", 0, 1),
        ("em", ["The Beatles"], "Beatles!", 1, 1),
        ("em", ["A"], "", 1, 0),  # an article is normalised away
        ("em", ["A"], "the", 1, 0),
        ("em", ["東京"], "東京", 1, 1),
        ("accuracy", ["true"], "True", 0.75, 1),  # the script compares characters
        ("containment_rationale", ["US"], "because", 1, 0),
    ],
)
def test_short_answers(
    metric: str, answers: list[str], answer: str, official: float, strict: float
) -> None:
    question = Question("1", "?", tuple(answers))
    assert both(metric, question, Outcome("1", "m", answer)) == pytest.approx((official, strict))


def test_the_whole_rationale_counts_for_instructrag() -> None:
    outcome = Outcome("1", "m", "It was Bo.", rationale="Document 1 names Ada. It was Bo.")
    question = Question("1", "?", ("Ada",))
    assert both("containment_rationale", question, outcome) == (1, 1)
    assert both("match", question, outcome) == (0, 0)


@pytest.mark.parametrize("metric", SHORT)
def test_a_failed_or_refused_run_scores_0_and_a_right_refusal_1(metric: str) -> None:
    question = Question("1", "?", ("Ada",))
    assert both(metric, question, FAILED)[1] == both(metric, question, REFUSED)[1] == 0
    unanswerable = Question("1", "?", unanswerable=True)
    assert both(metric, unanswerable, REFUSED) == (None, 1)
    assert both(metric, unanswerable, Outcome("1", "m", "Ada")) == (None, 0)
    assert both(metric, Question("1", "?"), Outcome("1", "m", "Ada")) == (None, None)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        *(("B", "B"), ("B.", "B"), ("(B) a metal", "B"), ("B: a metal, of course", "B")),
        *(("a metal", "B"), ("It is a metal.", "B"), ("A metal, not a gas", None), ("", None)),
        *(("A", "A"), ("Absolutely", None), ("b", "B")),
    ],
)
def test_the_option_of_an_answer(text: str, key: str | None) -> None:
    choices = {"A": "gas", "B": "a metal"}
    assert find_option(text, choices) == key
    for gold in ("B", "a metal"):
        question = Question("1", "?", (gold,), choices=choices)
        assert both("accuracy", question, Outcome("1", "m", text))[1] == (key == "B")


def test_str_em_by_hand() -> None:
    short = (("Ada", "A. King"), ("1852",), ("US",))
    question = Question("1", "?", short_answers=short)
    cited = "Ada [1], because.\nIn 1852."
    outcome = Outcome("1", "m", "Ada, because.\nIn 1852.", cited_answer=cited)
    assert both("str_em", question, outcome) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert both("str_em", question, FAILED)[1] == 0
    assert both("str_em", Question("1", "?"), outcome) == (None, None)


def test_means_skip_rows_without_a_score_and_mistakes_are_named() -> None:
    rows = [(Question("1", "?", ("a",)), Outcome("1", "m", "a")), (Question("2", "?"), FAILED)]
    assert score(rows, "match") == (1.0, (1.0, None))
    assert score([], "match").value is None
    with pytest.raises(BadArgument, match="metric must be one of match"):
        score([], "bleu")


def test_the_metrics_of_the_papers_for_questions_of_a_kind() -> None:
    assert default_metrics([Question("1", "?")]) == ["match", "em"]
    assert default_metrics([Question("1", "?", choices={"a": "a"})]) == ["accuracy"]
    assert default_metrics([Question("1", "?", short_answers=(("a",),))]) == ["str_em"]


WORDS = st.lists(st.sampled_from(["ada", "Bo", "the", "1852", "U.S.", "naïve"]), max_size=6)


@given(WORDS, WORDS, WORDS)
def test_a_text_contains_any_run_of_its_words(
    before: list[str], answer: list[str], after: list[str]
) -> None:
    text = " ".join([*before, *answer, *after])
    assert contains_answer(text, [" ".join(answer)]) == bool(answer)


@given(st.text(), st.text())
def test_scores_of_any_text_are_shares(answer: str, gold: str) -> None:
    question, outcome = Question("1", "?", (gold,)), Outcome("1", "m", answer)
    for metric in SHORT:
        assert all(value is None or 0 <= value <= 1 for value in both(metric, question, outcome))
    assert normalise(normalise(answer)) == normalise(answer)
