"""grade_documents: the evaluator scores the retrieved documents; the scores trigger an action."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from selfcorrect_rag.intake import title_of
from selfcorrect_rag.models.from_name import Evaluator, as_evaluator
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, grading, titled
from selfcorrect_rag.nodes.limits import FOR_THE_ANSWER, add_costs, best_so_far, limit_met, stopped
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.nodes.web_search import check_approval
from selfcorrect_rag.settings import CRAGSettings
from selfcorrect_rag.state import Grade
from selfcorrect_rag.thresholds import Action, Thresholds

BRANCHES: dict[Action, list[str]] = {
    "correct": ["refine"],
    "incorrect": ["search"],
    "ambiguous": ["refine", "search"],
}
"""The branches of each action (Algorithm 1)."""


def grade_documents(evaluator: Evaluator, settings: CRAGSettings | None = None) -> Node[Any]:
    """Score all documents in one batch and choose the action (CRAG sections 4.2 and 4.3).

    An empty retrieval counts as Incorrect. If a limit leaves no call for grading, there is no
    action, and the documents are refined as if Correct. A failing evaluator fails the run, unless
    Self-CRAG has already written something: then that is the answer.
    """
    judge = as_evaluator(evaluator)

    async def step(state: Mapping[str, Any], run: Run[CRAGSettings]) -> Update:
        chosen, passages = run.settings, state["passages"]
        check_approval(run)
        texts = [titled(passage) for passage in passages]
        calls = judge.model_calls(texts)
        if calls and (limit := limit_met(state, chosen, calls + FOR_THE_ANSWER)):
            marks = stopped(run, limit, "what was retrieved was not graded")
            return {"grades": [], "action": None, "branches": ["refine"], **marks}
        scores = await score(run, judge, state["question"], texts)
        grades = [
            Grade(document=i, title=title_of(passage), score=score)
            for i, (passage, score) in enumerate(zip(passages, scores, strict=True))
        ]
        thresholds = chosen.thresholds(judge.thresholds)
        action, bounds = _triggered(chosen, thresholds, scores), asdict(thresholds)
        run.emit("graded", grades=grades, action=action, **bounds)
        marks = {"thresholds": bounds, "branches": BRANCHES[action], "notes": judge.notes(scores)}
        return {"grades": grades, "action": action, **marks}

    return Node("grade_documents", step, CRAGSettings.of(settings), best_so_far)


async def score(
    run: Run[Any], evaluator: RetrievalEvaluator, question: str, texts: Sequence[str]
) -> list[float]:
    """Return the evaluator's scores of texts, scored in one batch.

    Calls of a model that is not LangChain's are counted as the evaluator says.
    """
    before, calls = run.costs["model_calls"], evaluator.model_calls(texts)
    traced = grading(evaluator)
    asked = {"question": question, "passages": texts}
    scores: list[float] = (await run.call(traced.invoke, traced.ainvoke, asked))["scores"]
    if run.costs["model_calls"] == before and calls:
        add_costs(run.costs, model_calls=calls, prompt_tokens=None, generated_tokens=None)
    return scores


def _triggered(settings: CRAGSettings, thresholds: Thresholds, scores: Sequence[float]) -> Action:
    """Return the action of scores, without the one that the settings ablate (Table 2)."""
    if settings.without_action == "ambiguous":
        thresholds = Thresholds(upper=thresholds.upper, lower=thresholds.upper)
    action = thresholds.action(scores)
    return "ambiguous" if action == settings.without_action else action
