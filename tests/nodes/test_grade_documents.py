"""grade_documents alone: scores, action, branches, notes, costs and limits."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from selfcorrect_rag.models import RetrievalEvaluator
from selfcorrect_rag.nodes.grade_documents import grade_documents
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import FREE
from selfcorrect_rag.thresholds import Thresholds
from tests.scripted import document, timeless

BRANCHES = {"correct": ["refine"], "incorrect": ["search"], "ambiguous": ["refine", "search"]}


class Scores(RetrievalEvaluator):
    """Gives these scores, at one model call for each passage."""

    thresholds = Thresholds(upper=0.5, lower=-0.5)

    def __init__(self, scores: Sequence[float]) -> None:
        self.scores, self.asked = list(scores), []

    def notes(self, scores: Sequence[float]) -> list[str]:
        return ["a note"] if list(scores) == self.scores else []

    def model_calls(self, passages: Sequence[str]) -> int:
        return len(passages)

    def score(self, question: str, passages: Sequence[str]) -> list[float]:
        self.asked.append((question, list(passages)))
        return self.scores


def graded(scores: Sequence[float], settings: CRAGSettings, spent: int = 0) -> tuple[Any, Scores]:
    """The update, sync and async alike, and the evaluator."""
    evaluator = Scores(scores)
    passages = [document(f"T {i}", f"Text {i}.") for i in range(len(scores))]
    route = [{**FREE, "model_calls": spent, "prompt_tokens": 40, "step": "x", "turn": "t"}]
    state = {"question": "Who?", "passages": passages, "route": route}
    node = grade_documents(evaluator, settings)
    update, again = node.invoke(state), asyncio.run(node.ainvoke(state))
    assert timeless(update) == timeless(again)
    return update, evaluator


@pytest.mark.parametrize(
    ("scores", "knobs", "action"),
    [
        ([0.6, -0.9], {}, "correct"),
        ([0.5, -0.9], {}, "ambiguous"),
        ([-0.6, -0.9], {}, "incorrect"),
        ([], {}, "incorrect"),
        ([0.6, -0.9], {"upper": 0.6}, "ambiguous"),
        ([-0.6, -0.9], {"lower": -0.6}, "ambiguous"),
        ([0.6], {"without_action": "correct"}, "ambiguous"),
        ([-0.6], {"without_action": "incorrect"}, "ambiguous"),
        ([0.5], {"without_action": "ambiguous"}, "incorrect"),
    ],
)
def test_scores_trigger_an_action(scores: list[float], knobs: Any, action: str) -> None:
    update, evaluator = graded(scores, CRAGSettings(**knobs))
    (step,) = update.pop("route")
    assert update == {
        "grades": [{"document": i, "title": f"T {i}", "score": s} for i, s in enumerate(scores)],
        "action": action,
        "thresholds": {"upper": knobs.get("upper", 0.5), "lower": knobs.get("lower", -0.5)},
        "branches": BRANCHES[action],
        "notes": ["a note"],
    }
    texts = [f"T {i} // Text {i}." for i in range(len(scores))]
    assert evaluator.asked == [("Who?", texts)] * 2
    tokens = None if scores else 0
    costs = [step[key] for key in ("model_calls", "prompt_tokens", "generated_tokens")]
    assert costs == [len(scores), tokens, tokens]


@pytest.mark.parametrize("spare", [0, -1])
@pytest.mark.parametrize("limit", ["max_model_calls", "max_tokens"])
def test_what_a_limit_leaves_ungraded_is_refined(limit: str, spare: int) -> None:
    """3 calls and 40 tokens are spent; 2 calls are for 2 documents and 1 for the answer."""
    most = {"max_model_calls": 3 + 2 + 1, "max_tokens": 40 + 1}[limit] + spare
    update, evaluator = graded([0.6, 0.6], CRAGSettings(**{limit: most}), spent=3)
    if spare == 0:
        assert update["action"] == "correct"
        return
    assert (update["grades"], update["action"], update["branches"]) == ([], None, ["refine"])
    assert update["stopped"] == limit
    assert update["notes"] == [f"{limit} is {most}: what was retrieved was not graded"]
    assert evaluator.asked == []
