"""How a run ends early: limits on its cost, and faults after something was written.

The limits are ``max_model_calls`` and ``max_tokens``. A step begins only if its model calls fit,
with one reserved for the answer, and if its maximum output fits into the tokens left. Prompt tokens
are known only afterwards, so the step that passes ``max_tokens`` is finished; tokens that a model
does not report are not counted. The answer itself is always written.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from selfcorrect_rag.errors import Fault
from selfcorrect_rag.nodes.node import Run, Update
from selfcorrect_rag.settings import Settings
from selfcorrect_rag.state import Beam, Limit, Step, Stop, known_tokens

FOR_THE_ANSWER = 1
"""Model calls reserved for the answer."""
STEPS: Collection[Step] = ("retrieve", "continue", "none")


def limit_met(
    state: Mapping[str, Any], settings: Settings, model_calls: int, tokens: int = 1
) -> Limit | None:
    """Return the limit that forbids a step; None if it may run.

    ``model_calls`` is the step's maximum, plus the calls that must be left after it; ``tokens`` the
    maximum that it generates.
    """
    most, route = settings.max_model_calls, state["route"]
    if most is not None and sum([r["model_calls"] for r in route]) + model_calls > most:
        return "max_model_calls"
    if settings.max_tokens is not None and known_tokens(route) + tokens > settings.max_tokens:
        return "max_tokens"
    return None


def stopped(run: Run[Any], by: Stop, what: str) -> Update:
    """Return the update that records that a limit was met or a part failed, and what was done."""
    bound = getattr(run.settings, by, None)
    note = what if bound is None else f"{by} is {bound}: {what}"
    run.emit({"event": "stopped", "by": by, "note": note})
    return {"stopped": by, "notes": [note]}


def best_so_far(
    state: Mapping[str, Any], run: Run[Any], fault: Fault, ends: Collection[Step] = STEPS
) -> Update:
    """End the beams whose next step is one of ``ends``, so that the best text becomes the answer.

    Raises:
        Fault: nothing has been written yet.
    """
    beams = state["beams"]
    written = max((len(beam["segments"]) for beam in beams), default=0)
    if not written:
        raise fault
    if is_ended(state):  # by another branch
        return {}
    ended = [{**beam, "next": None} if beam["next"] in ends else beam for beam in beams]
    note = f"{fault.reason}: the answer ends after segment {written}"
    return {"beams": ended, **stopped(run, cast(Stop, fault.part), note)}


def is_ended(state: Mapping[str, Any]) -> bool:
    """Return whether an answer was begun and every beam has ended."""
    beams = state.get("beams") or []
    return bool(beams) and not any(beam["next"] for beam in beams)


def first_beams(state: Mapping[str, Any], step: Step, retrieved: Sequence[int] = ()) -> list[Beam]:
    """Return the state's beams, or an initial one if it has none."""
    if state["beams"]:
        return cast(list[Beam], state["beams"])
    return [Beam(segments=[], score=0.0, next=step, cut=None, retrieved=list(retrieved))]
