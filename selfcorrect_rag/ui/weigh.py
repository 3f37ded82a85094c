"""Choose again in a finished run, with other weights and thresholds and no model call."""

from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.evaluation.reweigh import choose, rescored
from selfcorrect_rag.settings import GRAPHS, CRAGSettings, SelfRAGSettings
from selfcorrect_rag.thresholds import Thresholds
from selfcorrect_rag.ui.runs import PastRun

WEIGHTS = {
    "weight_sequence": "Weight of p(y)",
    "weight_isrel": "Weight of ISREL",
    "weight_issup": "Weight of ISSUP",
    "weight_isuse": "Weight of ISUSE",
}
THRESHOLDS = {"upper": "Correct above", "lower": "Incorrect below"}


def weighable(run: PastRun) -> dict[str, float]:
    """Return the settings of a run that can be weighed again, with the run's values."""
    settings: Any = GRAPHS[run.graph](**run.settings)
    values: dict[str, float] = {}
    if run.result.get("candidates") and isinstance(settings, SelfRAGSettings):
        values |= {name: getattr(settings, name) for name in WEIGHTS}
    if run.result.get("grades") and run.result.get("thresholds"):
        values |= {name: run.result["thresholds"][name] for name in THRESHOLDS}
    return values


def weigh(run: PastRun, given: Mapping[str, float]) -> tuple[dict[str, Any], list[str]]:
    """Return the result that other settings would have given, and what changes in words.

    Only scores, the choice among written candidates and CRAG's action are computed again. What a
    model, an evaluator or a search would have to say is not guessed but named.

    ``given`` are some of :func:`weighable`, changed; BadSettings if a value is out of bounds.
    """
    result = {**run.result}
    settings = GRAPHS[run.graph](**{**run.settings, **given})
    changes: list[str] = []
    if isinstance(settings, CRAGSettings) and result.get("grades"):
        changes += _other_action(result, settings)
    if isinstance(settings, SelfRAGSettings) and result.get("candidates"):
        changes += _other_choice(result, settings)
    return result, changes


def _other_action(result: dict[str, Any], settings: CRAGSettings) -> list[str]:
    try:
        thresholds = settings.thresholds(Thresholds(**result["thresholds"]))
    except ValueError as error:
        return [f"These thresholds do not fit together: {error}."]
    before = result.get("action")
    scores = [grade["score"] for grade in result["grades"] if grade["score"] is not None]
    result["thresholds"] = {"upper": thresholds.upper, "lower": thresholds.lower}
    result["action"] = thresholds.action(scores)
    if result["action"] == before:
        return []
    return [
        f"The action would be {result['action']}, not {before}. What that would have found, and "
        "the answer from it, is not known: run it again."
    ]


def _other_choice(result: dict[str, Any], settings: SelfRAGSettings) -> list[str]:
    candidates = rescored(result["candidates"], settings)
    result["candidates"] = candidates
    found = choose(candidates, settings)
    if found is None:
        return ["Another beginning might win, which this run did not continue: run it again."]
    answer, chosen = found
    if list(chosen) == [i for i, candidate in enumerate(candidates) if candidate["chosen"]]:
        return []
    for i, candidate in enumerate(candidates):
        candidate["chosen"] = i in chosen
    before = result.get("answer")
    result |= {"answer": answer, "cited_answer": answer, "citations": []}
    return [f"The answer would be “{answer}” in place of “{before}”. Its citations are not shown."]
