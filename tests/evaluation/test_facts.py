"""FActScore's formula: written down once more, and what its abstentions do."""

import math
from collections.abc import Sequence

import pytest

from selfcorrect_rag.evaluation.facts import fact_scores, factscore, official_factscore
from selfcorrect_rag.evaluation.rows import Outcome, Question
from tests.evaluation.generated import FACTS, long_rows, vary

ROWS = long_rows()


def judge(topic: str, answer: str) -> Sequence[bool]:
    """A fact for each known word and as many again; whether it is true depends on the topic."""
    assert topic.startswith("Person")
    found = [w for w in answer.lower().replace(".", "").split() if w in FACTS] * 2
    return [len(word) + len(topic) + i & 1 == 0 or i > 5 for i, word in enumerate(found)]


def formula(facts: Sequence[bool]) -> float:
    share = facts.count(True) / len(facts)
    return share if len(facts) > 10 else math.exp(1 - 10 / len(facts)) * share


def test_parity_of_both_forms() -> None:
    read = ["" if o.refused or o.error else o.answer for _, o in ROWS]
    facts = [list(judge(q.extra["topic"], t)) for (q, _), t in zip(ROWS, read, strict=True)]
    official = [official_factscore(q, o, judge) for q, o in ROWS]
    strict = [factscore(q, o, judge) for q, o in ROWS]
    assert official == pytest.approx([formula(each) if each else None for each in facts])
    assert strict == pytest.approx([formula(each) if each else 0.0 for each in facts])
    assert vary(official, 10)
    assert {len(each) > 10 for each in facts} == {True, False}

    answered = [each for each in facts if each]
    scores = fact_scores(ROWS, judge, skip_abstentions=True)
    share = [each.count(True) / len(each) for each in answered]
    assert scores == pytest.approx(
        (
            sum(map(formula, answered)) / len(answered),
            sum(share) / len(answered),
            len(answered) / len(ROWS),
            sum(map(len, answered)) / len(answered),
        )
    )
    strictly = fact_scores(ROWS, judge)
    assert strictly[2:] == scores[2:]
    assert strictly.score == pytest.approx(sum(map(formula, answered)) / len(ROWS))
    assert strictly.init_score == pytest.approx(sum(share) / len(ROWS))


def test_abstentions_raise_the_official_score_alone() -> None:
    question = Question("1", "Who is Ada?")
    good, wrong = (Outcome("1", "rag", text) for text in ("yes", "no"))
    silent = wrong._replace(refused=True)

    def judge(topic: str, answer: str) -> Sequence[bool]:
        assert topic == "Who is Ada?"
        return [answer == "yes"] * 10

    told = fact_scores([(question, good), (question, wrong)], judge, skip_abstentions=True)
    held = fact_scores([(question, good), (question, silent)], judge, skip_abstentions=True)
    assert (told.score, held.score) == (0.5, 1.0)
    assert (told.respond_ratio, held.respond_ratio) == (1.0, 0.5)
    assert fact_scores([(question, good), (question, silent)], judge).score == 0.5
    assert official_factscore(question, silent, judge) is None
    assert factscore(question, silent, judge) == 0
    assert official_factscore(question, wrong, judge) == 0.0  # no fact is true: still counted


def test_the_judge_is_not_asked_of_nothing() -> None:
    def never(topic: str, answer: str) -> Sequence[bool]:
        raise AssertionError(answer)

    row = Question("1", "Who?"), Outcome("1", "rag", " ", error="down")
    assert factscore(*row, never) == 0
    assert official_factscore(*row, never) is None
    assert fact_scores([], never) == (None, None, 0.0, None)
