"""decide_retrieval: ask the model, with one token, whether the answer needs evidence."""

from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.errors import Fault
from selfcorrect_rag.models import ReflectionLLM
from selfcorrect_rag.models.from_name import Model, as_reflection_llm
from selfcorrect_rag.nodes.limits import first_beams, limit_met, stopped
from selfcorrect_rag.nodes.node import Node, Run, Update
from selfcorrect_rag.prompts.self_rag import decision_prompt, question_text
from selfcorrect_rag.reflection import (
    CONTINUE,
    Group,
    Reflection,
    is_readable,
    retrieval_probability,
)
from selfcorrect_rag.settings import SelfRAGSettings
from selfcorrect_rag.state import Beam, Decision, Step


def decide_retrieval(
    llm: ReflectionLLM | Model, settings: SelfRAGSettings | None = None
) -> Node[SelfRAGSettings]:
    """Decide before the first segment. Generates one token, or none in modes always and never.

    Without a decision, by a limit or as the model fails, evidence is retrieved.
    """
    model = as_reflection_llm(llm)

    async def step(state: Mapping[str, Any], run: Run[SelfRAGSettings]) -> Update:
        mode, probability, threshold, update = run.settings.mode, None, None, dict[str, Any]()
        first: Step = "none" if mode == "never" else "retrieve"
        calls = model.most_calls(1, choose=True) + model.most_calls(1)
        limit = limit_met(state, run.settings, calls, 1 + run.settings.segment_tokens)
        if mode == "adaptive" and limit:
            update = stopped(run, limit, "evidence was retrieved without asking for the decision")
        elif mode == "adaptive":
            threshold = run.settings.threshold
            prompt = decision_prompt(question_text(state["question"], run.settings.instruction))
            (segment,) = await run.segments(model.choose, model.achoose, [prompt], Group.RETRIEVE)
            reflection = next(filter(is_readable, segment["reflections"]), None)
            if reflection is None:
                note = "the model did not say whether it needs evidence: evidence was retrieved"
                update = {"notes": [note]}
            else:
                first = next_step(reflection, run.settings, has_evidence=False)
                probability = retrieval_probability(reflection)
        decision = Decision(
            retrieve=first == "retrieve", probability=probability, threshold=threshold, mode=mode
        )
        run.emit("retrieval_decided", **decision)
        beam = Beam(segments=[], score=0.0, next=first, cut=None, retrieved=[])
        return {"retrieval": decision, "beams": [beam], **update}

    return Node("decide_retrieval", step, SelfRAGSettings.of(settings), _retrieve_all_the_same)


def _retrieve_all_the_same(state: Mapping[str, Any], run: Run[Any], fault: Fault) -> Update:
    decision = Decision(retrieve=True, probability=None, threshold=None, mode=run.settings.mode)
    run.emit("retrieval_decided", **decision)
    update = {"retrieval": decision, "beams": first_beams(state)}
    return update | {"notes": [f"{fault.reason}: evidence was retrieved"]}


def next_step(reflection: Reflection, settings: SelfRAGSettings, has_evidence: bool) -> Step:
    """Return the next step after a retrieval token (section 3.3 and A.3, adaptive retrieval).

    ``[Continue to Use Evidence]`` keeps the passage if there is one, unless retrieval is off.
    Otherwise the mode decides, and in mode adaptive the threshold on the ratio of probabilities,
    or, with no threshold, the likelier of ``[Retrieval]`` and ``[No Retrieval]``.
    """
    if settings.mode == "never":
        return "none"
    if reflection["token"] == CONTINUE and has_evidence:
        return "continue"
    threshold = 0.5 if settings.threshold is None else settings.threshold
    is_wanted = settings.mode == "always" or retrieval_probability(reflection) > threshold
    return "retrieve" if is_wanted else "none"
