"""Says why in words: how a score was summed, what its terms mean, which steps were left out."""

from collections.abc import Mapping
from typing import Any

from selfcorrect_rag.reflection import SEQUENCE, Group
from selfcorrect_rag.render.reading import (
    Result,
    action,
    decision,
    graph_of,
    number,
    records,
    rows,
)

LEGEND = {
    Group.ISREL.value: "whether the passage is relevant to the question: 0 to 1.",
    Group.ISSUP.value: "whether the passage supports the text: 1 fully, 0.5 partially, 0 not.",
    Group.ISUSE.value: "whether the answer is useful: -1 to 1. Only the end of an answer has one.",
    SEQUENCE: "how probable the model finds its own text: 0 to 1, its tokens' geometric mean.",
    "score": "each of these times its weight, summed (Self-RAG, Eq. 3-4).",
    "path": "the scores of an answer's segments, combined by the path rule: mean, sum or product. "
    "By mean, a segment without a passage of its own takes the path's means for ISREL and ISSUP.",
}
"""What the scores of candidates mean."""


def written(value: float | None, digits: int = 2) -> str:
    """A number as text, with a true minus; a dash where there is none."""
    if value is None:
        return "\u2013"
    return f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "\u2212")


def score_sum(candidate: Mapping[str, Any]) -> str:
    """A candidate's score as Eq. 3-4 sums it, such as ``1 x p(y) 0.98 + 1 x ISREL 1.00 = 1.98``;
    empty where its terms are unknown."""
    terms = [
        f"{number(term.get('weight')) or 0:g} \u00d7 {str(term.get('name'))[:40]} "
        f"{written(number(term.get('value')))}"
        for term in records(candidate, "terms")
    ]
    return f"{' + '.join(terms)} = {written(number(candidate.get('score')))}" if terms else ""


def path_sum(candidate: Mapping[str, Any]) -> str:
    """The score of a path of several segments, such as ``(3.48 + 3.10) / 2 = 3.29``; empty for
    one segment."""
    terms = [written(number(term)) for term in rows(candidate, "path_terms")]
    if len(terms) < 2:
        return ""
    total = (" \u00d7 " if candidate.get("path_rule") == "product" else " + ").join(terms)
    if candidate.get("path_rule") == "mean":
        total = f"({total}) / {len(terms)}"
    return f"{total} = {written(number(candidate.get('path_score')))}"


def left_out(result: Result) -> list[str]:
    """The steps that a finished run left out, each with the reason."""
    steps = {step.get("step") for step in records(result, "route")}
    if not steps or rows(result, "__interrupt__"):
        return []
    decided, taken, said = decision(result), action(result), []
    if decided and "retrieve" not in steps:
        said.append(f"No retrieval: {decided[1]}.")
    if graph_of(result) == "instruct_rag":
        if "retrieve" not in steps:
            said.append(f"No retrieval: mode {result.get('mode')}.")
        elif "choose_demonstrations" not in steps:
            said.append(f"No demonstrations: mode {result.get('mode')}, or nothing was found.")
    if taken and taken[0] == "correct":
        said.append(f"No web search: the action is Correct ({taken[1]}).")
    if taken and taken[0] == "incorrect":
        said.append(f"No strips of the passages: the action is Incorrect ({taken[1]}).")
    if result.get("stopped"):
        said.append(f"Cut short: {result['stopped']}.")
    return said
