"""FActScore (Min et al., 2023): the share of a biography's atomic facts that are supported.

A judge is plugged in as ``judge(topic, answer)``: it splits the answer into atomic facts and says
of each whether it is supported, an empty list where the answer has none. The paper's splits with
InstructGPT, and asks ChatGPT with 5 passages of the topic's page of Wikipedia.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.texts import output, stated, without_marks

FactJudge = Callable[[str, str], Sequence[bool]]
GAMMA = 10
"""Facts from which on an answer is no longer too short."""


class FactScores(NamedTuple):
    """FActScore of many rows, with what the paper says to report beside it."""

    score: float | None
    """With the penalty of short answers; None where no row is counted."""
    init_score: float | None
    """Without it."""
    respond_ratio: float
    """Share of all rows that have facts."""
    facts: float | None
    """Mean number of facts of the rows that have any."""


def official_factscore(question: Question, outcome: Outcome, judge: FactJudge) -> float | None:
    """Share of supported facts, times exp(1 - 10/n) for n of up to 10 facts (FActScore's code).

    Trap: an answer without facts is an abstention and is not counted (None), so that a method
    raises its score by answering only what it knows.
    """
    text = without_marks(output(outcome))
    facts = _facts(question, "" if outcome.refused else text, judge)
    return penalised(facts) if facts else None


def factscore(question: Question, outcome: Outcome, judge: FactJudge) -> float | None:
    """As :func:`official_factscore`, but 0 where the run failed, refused or states no fact."""
    return penalised(_facts(question, stated(outcome), judge))


def fact_scores(
    rows: Sequence[tuple[Question, Outcome]], judge: FactJudge, *, skip_abstentions: bool = False
) -> FactScores:
    """FActScore, its score without penalty, the share of rows with facts and their number.

    Args:
        rows: questions, each with ``extra["topic"]`` or else its question as topic.
        judge: as in this module's docstring; asked once a row that has an answer.
        skip_abstentions: as the official code; otherwise a row without facts scores 0.
    """
    judged = [_facts(question, stated(outcome), judge) for question, outcome in rows]
    with_facts = [facts for facts in judged if facts]
    counted = with_facts if skip_abstentions else judged
    return FactScores(
        _mean([penalised(facts) for facts in counted]),
        _mean([_supported(facts) for facts in counted]),
        len(with_facts) / len(judged) if judged else 0.0,
        _mean([float(len(facts)) for facts in with_facts]),
    )


def _facts(question: Question, text: str, judge: FactJudge) -> Sequence[bool]:
    return judge(topic_of(question), text) if text.strip() else ()


def topic_of(question: Question) -> str:
    """What an answer's facts are about: the row's topic, or else its question."""
    return str(question.extra.get("topic") or question.question)


def penalised(facts: Sequence[bool]) -> float:
    """Share of supported facts, with the penalty of short answers; 0 without facts."""
    short = 0 < len(facts) < GAMMA
    return _supported(facts) * (math.exp(1 - GAMMA / len(facts)) if short else 1.0)


def _supported(facts: Sequence[bool]) -> float:
    return sum(facts) / len(facts) if facts else 0.0


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
