"""Outcomes are read off results and rows, and counted."""

import json

from langchain_core.documents import Document

from selfcorrect_rag.evaluation.outcomes import Outcome, count, outcome_from, outcome_of
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
