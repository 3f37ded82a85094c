"""Outcomes are read off results and rows, counted, and drawn as abstention curves."""

import json

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage

from selfcorrect_rag.errors import BadArgument
from selfcorrect_rag.evaluation.outcomes import (
    Outcome,
    abstention_curve,
    confidences,
    count,
    official_retrieval_frequency,
    outcome_from,
    outcome_of,
)
from selfcorrect_rag.evaluation.tasks import Question

QUESTION = Question("q", "Who?")
PAGE = Document("Ada won.", metadata={"title": "Cup", "url": "https://example.org"})


def test_what_a_corrective_graph_says() -> None:
    result = {
        "answer": "Ada.",
        "cited_answer": "Ada [1].",
        "citations": [{"number": 1, "passage": 0}],
        "passages": [PAGE, PAGE],
        "knowledge": [PAGE],
        "action": "ambiguous",
        "grades": [{"score": 0.4}, {"score": None}],
        "web_query": "cup",
        "web_failure": "",
        "route": [{"step": "retrieve"}, {"step": "generate"}],
        "usage": {"model_calls": 3, "prompt_tokens": 20, "generated_tokens": None},
    }
    outcome = outcome_of(QUESTION, "crag", result, 1.23456)
    assert outcome.passages == (
        {"title": "Cup", "text": "Ada won.", "source": "https://example.org"},
    )
    assert (outcome.action, outcome.grades, outcome.retrieved, outcome.searched) == (
        *("ambiguous", (0.4,)),
        *(True, True),
    )
    assert (outcome.model_calls, outcome.prompt_tokens, outcome.generated_tokens) == (3, 20, None)
    assert outcome.seconds == 1.235
    assert outcome_from(json.loads(json.dumps(outcome._asdict()))) == outcome


def test_another_graph_answers_by_its_last_message() -> None:
    outcome = outcome_of(QUESTION, "mine", {"messages": [AIMessage("Ada")]}, 0)
    assert (outcome.answer, outcome.retrieved, outcome.refused) == ("Ada", False, False)
    assert outcome_of(QUESTION, "mine", {"answer": " "}, 0).refused
    with pytest.raises(ValueError, match="neither an answer nor messages"):
        outcome_of(QUESTION, "mine", {}, 0)


OUTCOMES = [
    Outcome("1", "m", "Ada", retrieved=True, citations=({"number": 1},), action="correct"),
    Outcome("2", "m", "Bo", retrieved=True, action="incorrect", searched=True),
    Outcome("3", "m", "I do not know.", retrieved=True, refused=True, action="ambiguous"),
    Outcome("4", "m", "", error="down"),
]


def test_every_row_is_counted() -> None:
    counted = count(OUTCOMES)
    assert counted == {
        "rows": 4,
        "answered": 2,
        "refused": 1,
        "failed": 1,
        "cited": 1,
        "retrieved": 3,
        "searched": 1,
        "corrected": 2,
    }
    assert official_retrieval_frequency(OUTCOMES) == 3 / 8  # by the 8 keys of its result


def test_an_abstention_curve_by_hand() -> None:
    curve = abstention_curve(OUTCOMES, [1.0, 0.0, 0.0, 0.0], [0.9, 0.4, 0.2, 0.0])
    assert curve == [(0.9, 0.25, 1.0), (0.4, 0.5, 0.5)]
    assert abstention_curve(OUTCOMES, [1.0, 0.0, None, None]) == [(0.0, 1.0, 0.5)]
    with pytest.raises(BadArgument, match="one length"):
        abstention_curve(OUTCOMES, [1.0])


def test_how_sure_a_method_is() -> None:
    segments = (
        {"chosen": True, "critique": {"ISSUP": 0.2}},
        {"chosen": True, "critique": {"ISSUP": 0.7}},
    )
    reflected = Outcome("1", "m", "x", candidates=segments, grades=(0.9,))
    graded = Outcome("2", "m", "x", grades=(-0.3, 0.4))
    assert confidences([reflected, graded]) == [0.7, -1.0]
    assert confidences([graded, OUTCOMES[3]]) == [0.4, -1.0]
    likely = ({"chosen": True, "critique": {"ISSUP": None}, "sequence_probability": 0.5},)
    assert confidences([Outcome("3", "m", "x", candidates=likely)]) == [0.5]
    assert confidences(OUTCOMES) is None
