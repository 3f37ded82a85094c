"""grade_documents: the evaluator scores the retrieved documents; the scores trigger an action."""

from collections.abc import Sequence
from dataclasses import asdict

from selfcorrect_rag.errors import Fault
from selfcorrect_rag.events import Graded
from selfcorrect_rag.models.from_name import Evaluator, as_evaluator
from selfcorrect_rag.models.retrieval_evaluator import RetrievalEvaluator, grading, titled
from selfcorrect_rag.nodes.base.limits import FOR_THE_ANSWER, best_so_far, limit_met, stopped
from selfcorrect_rag.nodes.base.node import Node, Update, Work, call, current, emit
from selfcorrect_rag.nodes.base.usage import counted_calls
from selfcorrect_rag.settings import CRAGSettings, SelfCRAGSettings
from selfcorrect_rag.state.crag import CRAGState, Grade
from selfcorrect_rag.state.sources import title_of
from selfcorrect_rag.thresholds import Action, Thresholds

BRANCHES: dict[Action, list[str]] = {
    "correct": ["refine"],
    "incorrect": ["search"],
    "ambiguous": ["refine", "search"],
}
"""The branches that each action takes (Algorithm 1)."""


def grade_documents(evaluator: Evaluator, settings: CRAGSettings | None = None) -> Node:
    """Score all documents in one batch and choose the action (CRAG sections 4.2 and 4.3).

    An empty retrieval counts as Incorrect. Where a limit leaves no call for grading, there is no
    action, and the documents are refined as if Correct. A failing evaluator fails the run, unless
    Self-CRAG has already written something: then that is the answer.
    """
    settings = CRAGSettings.of_step(settings)
    judge = as_evaluator(evaluator)
    run = grading(judge)

    def step(state: CRAGState) -> Work:
        chosen, texts = current(settings), [titled(passage) for passage in state["passages"]]
        calls = judge.model_calls(texts)
        if calls and (limit := limit_met(state, chosen, calls + FOR_THE_ANSWER)):
            marks = stopped(state, chosen, limit, "what was retrieved was not graded")
            return {"grades": [], "action": None, "branches": ["refine"], **marks}
        asked = {"question": state["question"], "passages": texts}
        given = yield from call(run.invoke, run.ainvoke, asked, within=counted_calls(calls))
        return _update(state, chosen, judge, given["scores"])

    return Node("grade_documents", step, settings, _failed)


def _failed(state: CRAGState, fault: Fault) -> Update:
    return {"branches": [], **best_so_far(state, fault)}


def _update(
    state: CRAGState,
    settings: CRAGSettings,
    evaluator: RetrievalEvaluator,
    scores: Sequence[float],
) -> Update:
    grades = [
        Grade(document=i, title=title_of(passage), score=score)
        for i, (passage, score) in enumerate(zip(state["passages"], scores, strict=True))
    ]
    thresholds = settings.thresholds(evaluator.thresholds)
    action = triggered(settings, thresholds, scores)
    upper, lower = thresholds.upper, thresholds.lower
    emit(Graded(event="graded", grades=grades, action=action, upper=upper, lower=lower))
    return {
        "grades": grades,
        "action": action,
        "thresholds": asdict(thresholds),
        "branches": branches_of(settings, action),
        "notes": [*state["notes"], *evaluator.notes],
    }


def branches_of(settings: CRAGSettings, action: Action) -> list[str]:
    """The branches that a run takes: those of its action, or both where its settings say so."""
    everything = isinstance(settings, SelfCRAGSettings) and settings.contexts == "all"
    return ["refine", "search"] if everything else BRANCHES[action]


def triggered(settings: CRAGSettings, thresholds: Thresholds, scores: Sequence[float]) -> Action:
    """The action that scores trigger, without the one that the settings ablate (section 5.4,
    Table 2)."""
    if settings.without_action == "ambiguous":
        thresholds = Thresholds(upper=thresholds.upper, lower=thresholds.upper)
    action = thresholds.action(scores)
    return "ambiguous" if action == settings.without_action else action
