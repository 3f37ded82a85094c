"""The substring check of rationales."""

import pytest

from selfcorrect_rag.evaluation.matching import contains_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is Norwich, England.", "norwich england"),
        ("It was THE BEATLES!", "Beatles"),
        ("born in the U.S.", "US"),
        ("(1990-1995)", "1990"),
        ("Bob Marley's Exodus", "Bob Marleys"),
        ("by The The", "The The"),
        ("Sokółka", "Soko\u0301łka"),
        ("東京は首都です", "東京"),
        ("राजधानी दिल्ली है", "दिल्ली"),
        ("a line\nbreak", "line  break"),
    ],
)
def test_it_is_there(text: str, answer: str) -> None:
    assert contains_answer(text, ["absent", answer])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("because thus", "US"),
        ("I know", "no"),
        ("1990s", "1990"),
        ("in 21 days", "1"),
        ("Norwich", "Norwich, England"),
        ("Norwich in England", "Norwich, England"),
        ("anything", ""),
        ("anything", "..."),
    ],
)
def test_it_is_not(text: str, answer: str) -> None:
    assert not contains_answer(text, [answer])


def test_no_answers_are_nowhere() -> None:
    assert not contains_answer("anything", [])
