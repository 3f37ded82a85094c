"""decide_retrieval: ask the model, with one token, whether the answer needs evidence."""

from selfcorrect_rag.events import RetrievalDecided
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.from_name import Model, as_reflection_llm
from selfcorrect_rag.nodes.base.limits import limit_met, stopped
from selfcorrect_rag.nodes.base.node import Node, Update, Work, call, callbacks, current, emit
from selfcorrect_rag.nodes.base.usage import used
from selfcorrect_rag.prompts.self_rag import decision_prompt, question_text
from selfcorrect_rag.reflection import (
    CONTINUE,
    Group,
    Reflection,
    is_readable,
    retrieval_probability,
)
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state.costs import Limit
from selfcorrect_rag.state.self_rag import Beam, Decision, Segment, SelfRAGState, Step


def next_step(reflection: Reflection, settings: SelfRAGSettings, has_evidence: bool) -> Step:
    """The next step after a retrieval token (section 3.3 and A.3, adaptive retrieval).

    ``[Continue to Use Evidence]`` keeps the passage where there is one, unless retrieval is off.
    Otherwise the mode decides, and in mode adaptive the threshold on the ratio of probabilities,
    or, with no threshold, the likelier of ``[Retrieval]`` and ``[No Retrieval]``.

    Args:
        reflection: a retrieval token, from the Retrieve group.
        settings: the run's settings.
        has_evidence: whether the segment before was written from a passage.
    """
    if settings.mode == "never":
        return "none"
    if reflection["token"] == CONTINUE and has_evidence:
        return "continue"
    if settings.mode == "always":
        return "retrieve"
    return "retrieve" if wants_evidence(retrieval_probability(reflection), settings) else "none"


def wants_evidence(probability: float, settings: SelfRAGSettings) -> bool:
    """Whether the ratio of probabilities asks for evidence, by the setting ``threshold``."""
    return probability > (0.5 if settings.threshold is None else settings.threshold)


def decide_retrieval(llm: ReflectionLLM | Model, settings: SelfRAGSettings | None = None) -> Node:
    """Decide before the first segment. Generates one token, or none in modes always and never.

    Where a limit leaves calls for one candidate only, evidence is retrieved without asking.
    """
    settings = SelfRAGSettings.of_step(settings)
    model = as_reflection_llm(llm)

    def run(state: SelfRAGState) -> Work:
        chosen = current(settings)
        if limit := _limit(model, state, chosen):
            return _unasked(state, chosen, limit)
        if chosen.mode != "adaptive":
            return _update(state, chosen, None, retrieve=chosen.mode == "always")
        prompt = decision_prompt(question_text(state["question"], chosen.instruction))
        segments = yield from call(
            model.choose, model.achoose, [prompt], Group.RETRIEVE, callbacks=callbacks()
        )
        return _update(state, chosen, segments[0])

    return Node("decide_retrieval", run, settings)


def _limit(llm: ReflectionLLM, state: SelfRAGState, settings: SelfRAGSettings) -> Limit | None:
    if settings.mode != "adaptive":
        return None
    calls = llm.most_calls(1, choose=True) + llm.most_calls(1)
    return limit_met(state, settings, calls, 1 + settings.segment_tokens)


def _unasked(state: SelfRAGState, settings: SelfRAGSettings, limit: Limit) -> Update:
    what = "evidence was retrieved without asking whether it is wanted"
    return {
        **_update(state, settings, None, retrieve=True),
        **stopped(state, settings, limit, what),
    }


def _update(
    state: SelfRAGState,
    settings: SelfRAGSettings,
    segment: Segment | None,
    retrieve: bool = False,
) -> Update:
    probability, usage, notes = None, state["usage"], state["notes"]
    if segment is not None:
        usage = used(usage, [segment])
        reflection = next(filter(is_readable, segment["reflections"]), None)
        if reflection is not None:
            retrieve = next_step(reflection, settings, has_evidence=False) == "retrieve"
            probability = retrieval_probability(reflection)
        else:
            retrieve = True
            notes = [*notes, "the model did not say whether it needs evidence: it got some"]
    decision = Decision(
        retrieve=retrieve,
        probability=probability,
        threshold=None if segment is None else settings.threshold,
        mode=settings.mode,
    )
    emit(RetrievalDecided(event="retrieval_decided", **decision))
    step: Step = "retrieve" if retrieve else "none"
    first = Beam(segments=[], score=0.0, next=step, cut=None, retrieved=[])
    return {"retrieval": decision, "beams": [first], "usage": usage, "notes": notes}
