"""grade_documents: the evaluator scores what was retrieved, and the scores trigger an action."""

from collections.abc import Sequence

from selfcorrect_rag.events import Graded
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, titled
from selfcorrect_rag.nodes.base import Node, Update, current, emit
from selfcorrect_rag.settings import CRAGSettings, SelfCRAGSettings
from selfcorrect_rag.state import CRAGState, Grade
from selfcorrect_rag.thresholds import Action, Thresholds

BRANCHES: dict[Action, list[str]] = {
    "correct": ["refine"],
    "incorrect": ["search"],
    "ambiguous": ["refine", "search"],
}
"""What each action does (Algorithm 1)."""


def grade_documents(evaluator: RetrievalEvaluator, settings: CRAGSettings) -> Node[CRAGState]:
    """Score all documents in one batch and choose the action (CRAG sections 4.2 and 4.3).

    Nothing retrieved is an incorrect retrieval.
    """

    def run(state: CRAGState) -> Update:
        texts = [titled(passage) for passage in state["passages"]]
        return _update(
            state, current(settings), evaluator, evaluator.score(state["question"], texts)
        )

    async def arun(state: CRAGState) -> Update:
        texts = [titled(passage) for passage in state["passages"]]
        scores = await evaluator.ascore(state["question"], texts)
        return _update(state, current(settings), evaluator, scores)

    return Node(run, arun)


def _update(
    state: CRAGState,
    settings: CRAGSettings,
    evaluator: RetrievalEvaluator,
    scores: Sequence[float],
) -> Update:
    grades = [
        Grade(document=i, title=str(passage.metadata.get("title") or ""), score=score)
        for i, (passage, score) in enumerate(zip(state["passages"], scores, strict=True))
    ]
    thresholds = settings.thresholds(evaluator.thresholds)
    action = _without(settings, thresholds, scores)
    upper, lower = thresholds.upper, thresholds.lower
    emit(Graded(event="graded", grades=grades, action=action, upper=upper, lower=lower))
    everything = isinstance(settings, SelfCRAGSettings) and settings.contexts == "all"
    branches = ["refine", "search"] if everything else BRANCHES[action]
    return {"grades": grades, "action": action, "branches": branches}


def _without(settings: CRAGSettings, thresholds: Thresholds, scores: Sequence[float]) -> Action:
    """The action, with one left out where the settings say so (section 5.4, Table 2)."""
    if settings.without_action == "ambiguous":
        thresholds = Thresholds(upper=thresholds.upper, lower=thresholds.upper)
    action = thresholds.action(scores)
    return "ambiguous" if action == settings.without_action else action
