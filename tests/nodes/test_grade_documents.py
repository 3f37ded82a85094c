"""grade_documents alone: its whole update and event by action, notes, costs and limits."""

from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.documents import Document

from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.nodes.grade_documents import grade_documents
from selfcorrect_rag.settings import CRAGSettings, SelfCRAGSettings, Settings
from selfcorrect_rag.state import SelfCRAGState
from selfcorrect_rag.thresholds import Thresholds
from tests.nodes.one_node import Ran, costs, run_node


class Scores(RetrievalEvaluator):
    """Gives the scores in turn, at one model call for each passage."""

    thresholds = Thresholds(upper=0.5, lower=-0.5)
    notes = ["a note", "another"]  # noqa: RUF012

    def __init__(self, scores: Sequence[float]) -> None:
        self.scores, self.asked = list(scores), []

    def model_calls(self, passages: Sequence[str]) -> int:
        return len(passages)

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        self.asked.append(("score", question, list(passages)))
        return self.scores

    async def ascore(self, question: str, passages: Sequence[str]) -> list[float]:
        self.asked.append(("ascore", question, list(passages)))
        return self.scores


def graded(
    scores: Sequence[float], *, spent: Any = None, settings: Settings | None = None, **knobs: Any
) -> tuple[Ran, Scores]:
    evaluator = Scores(scores)
    state = {
        "question": "Who?",
        "passages": [
            Document(f"Text {i}.", metadata={"title": f"T {i}"}) for i in range(len(scores))
        ],
        "notes": ["before"],
        "costs": spent or costs(),
    }
    settings = settings or CRAGSettings(**knobs)
    node = grade_documents(evaluator, type(settings)())
    return run_node(node, SelfCRAGState, state, settings), evaluator


BRANCHES = {
    "correct": ["refine"],
    "incorrect": ["search"],
    "ambiguous": ["refine", "search"],
}


@pytest.mark.parametrize(
    ("scores", "knobs", "action"),
    [
        ([0.6, -0.9], {}, "correct"),
        ([-0.9, 0.6], {}, "correct"),
        ([0.5, -0.9], {}, "ambiguous"),
        ([-0.5, -0.9], {}, "ambiguous"),
        ([-0.6, -0.9], {}, "incorrect"),
        ([], {}, "incorrect"),
        ([0.6, -0.9], {"upper": 0.6}, "ambiguous"),
        ([-0.6, -0.9], {"lower": -0.6}, "ambiguous"),
        ([0.6], {"without_action": "correct"}, "ambiguous"),
        ([-0.6], {"without_action": "correct"}, "incorrect"),
        ([-0.6], {"without_action": "incorrect"}, "ambiguous"),
        ([0.6], {"without_action": "incorrect"}, "correct"),
        ([0.0], {"without_action": "ambiguous"}, "incorrect"),
        ([0.5], {"without_action": "ambiguous"}, "incorrect"),
        ([0.6], {"without_action": "ambiguous"}, "correct"),
        ([0.2], {"without_action": "ambiguous", "upper": 0.1}, "correct"),
    ],
)
def test_a_whole_update_and_its_event(
    scores: list[float], knobs: dict[str, Any], action: str
) -> None:
    ran, evaluator = graded(scores, **knobs)
    upper, lower = knobs.get("upper", 0.5), knobs.get("lower", -0.5)
    grades = [{"document": i, "title": f"T {i}", "score": s} for i, s in enumerate(scores)]
    assert ran.update == {
        "grades": grades,
        "action": action,
        "thresholds": {"upper": upper, "lower": lower},
        "branches": BRANCHES[action],
        "notes": ["before", "a note", "another"],
    }
    assert ran.events == [
        {"event": "graded", "grades": grades, "action": action, "upper": upper, "lower": lower}
    ]
    texts = [f"T {i} // Text {i}." for i in range(len(scores))]
    assert evaluator.asked == [(form, "Who?", texts) for form in ("score", "ascore")]
    tokens = None if scores else 0
    assert {**ran.cost, "seconds": 0} == {
        "model_calls": len(scores),
        "prompt_tokens": tokens,
        "generated_tokens": tokens,
        "seconds": 0,
    }


@pytest.mark.parametrize("score", [0.6, 0.0, -0.6])
def test_self_crag_with_all_contexts_does_both_whatever_the_action(score: float) -> None:
    everything, _ = graded([score], settings=SelfCRAGSettings(contexts="all"))
    assert everything.update["branches"] == ["refine", "search"]
    action, _ = graded([score], settings=SelfCRAGSettings(contexts="action"))
    assert action.update["branches"] == BRANCHES[action.update["action"]]
    assert everything.update["action"] == action.update["action"]


@pytest.mark.parametrize("spare", [0, -1])
@pytest.mark.parametrize("limit", ["max_model_calls", "max_tokens"])
def test_what_a_limit_leaves_ungraded_is_refined(limit: str, spare: int) -> None:
    """3 calls and 40 tokens are spent; 2 calls are for 2 documents and 1 for the answer."""
    most = {"max_model_calls": 3 + 2 + 1, "max_tokens": 40 + 1}[limit] + spare
    ran, evaluator = graded([0.6, 0.6], spent=costs(3, 40), **{limit: most})
    if spare == 0:
        assert ran.update["action"] == "correct"
        return
    note = f"{limit} is {most}: what was retrieved was not graded"
    assert ran.update == {
        "grades": [],
        "action": None,
        "branches": ["refine"],
        "stopped": limit,
        "notes": ["before", note],
    }
    assert ran.events == [{"event": "stopped", "by": limit, "note": note}]
    assert evaluator.asked == []
    assert ran.cost["model_calls"] == 0


def test_grading_nothing_takes_no_call_that_a_limit_could_forbid() -> None:
    ran, _ = graded([], spent=costs(3, 40), max_model_calls=1, max_tokens=1)
    assert (ran.update["action"], ran.update["branches"]) == ("incorrect", ["search"])
