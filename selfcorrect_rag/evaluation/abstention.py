"""How sure methods were of their answers, and what they would score if they answered less."""

from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.evaluation.counts import abstention_curve
from selfcorrect_rag.evaluation.rows import Outcome
from selfcorrect_rag.evaluation.run import Finished

BEST_GRADE = "best grade of a document"
ISSUP = "ISSUP of the last segment chosen"
SEQUENCE = "probability of the last segment chosen"
MOST_POINTS = 100
"""Of a curve that is drawn and kept."""


def confidences(outcomes: list[Outcome]) -> tuple[str, list[float]] | None:
    """What says how sure a method was, in words, and its value for each outcome.

    Self-RAG is as sure as the ISSUP of its last chosen segment, or, where no segment has one, as
    the segment's probability; CRAG, and any other method that grades documents, as its best grade.
    An outcome without that value has the lowest one, -1. None for methods that have neither.
    """
    none: Mapping[str, Any] = {}
    chosen: list[Mapping[str, Any]] = [
        next((c for c in reversed(o.candidates) if c["chosen"]), none) for o in outcomes
    ]
    by_name: dict[str, list[float | None]] = {
        ISSUP: [(candidate.get("critique") or {}).get("ISSUP") for candidate in chosen],
        SEQUENCE: [candidate.get("sequence_probability") for candidate in chosen],
        BEST_GRADE: [max(outcome.grades, default=None) for outcome in outcomes],
    }
    for name, values in by_name.items():
        if any(value is not None for value in values):
            return name, [-1.0 if value is None else value for value in values]
    return None


def curves(
    finished: Finished, scores: Mapping[str, Mapping[str, float | None]]
) -> dict[str, dict[str, Any]]:
    """The abstention curve of every method that has confidences, as JSON values.

    Args:
        finished: the run.
        scores: by the method's name and the question's id.
    """
    found = {}
    for method in finished.methods:
        outcomes = finished.of(method)
        if sure := confidences(outcomes):
            rows = [scores[method].get(outcome.id) for outcome in outcomes]
            points = abstention_curve(outcomes, rows, sure[1])
            step = -(-len(points) // MOST_POINTS) or 1
            kept = points[::-1][::step][::-1]  # the last is the method as it ran
            found[method] = {"confidence": sure[0], "points": [p._asdict() for p in kept]}
    return {method: curve for method, curve in found.items() if curve["points"]}
