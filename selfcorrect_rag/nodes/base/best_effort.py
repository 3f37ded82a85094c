"""What becomes of an answer when a part fails after something of it was written."""

from collections.abc import Collection, Mapping
from typing import Any, cast

from selfcorrect_rag.errors import Fault
from selfcorrect_rag.nodes.base.limits import marked
from selfcorrect_rag.nodes.base.node import Update
from selfcorrect_rag.state.costs import Stop
from selfcorrect_rag.state.self_rag import Step

STEPS: Collection[Step] = ("retrieve", "continue", "none")


def best_so_far(state: Mapping[str, Any], fault: Fault, ends: Collection[Step] = STEPS) -> Update:
    """End beams where they are, so that the best of what is written is the answer.

    Args:
        state: of any graph.
        fault: why.
        ends: beams that want to go on in one of these ways.

    Raises:
        Fault: nothing is written that could be the answer.
    """
    beams = state.get("beams") or []
    if not any(beam["segments"] for beam in beams):
        raise fault
    if is_ended(state):  # by another branch
        return {}
    ended = [{**beam, "next": None} if beam["next"] in ends else beam for beam in beams]
    written = max(len(beam["segments"]) for beam in beams)
    note = f"{fault.reason}: the answer ends after segment {written}"
    return {"beams": ended, **marked(state, cast(Stop, fault.part), note)}


def is_ended(state: Mapping[str, Any]) -> bool:
    """Whether an answer was begun and no beam goes on."""
    beams = state.get("beams") or []
    return bool(beams) and not any(beam["next"] for beam in beams)
