"""How well each part of a method does by itself, from the rows of a run; no model is asked."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from selfcorrect_rag.evaluation.calibration import Reliability, reliability
from selfcorrect_rag.evaluation.counts import is_answered
from selfcorrect_rag.evaluation.labels import (
    Found,
    judged,
    relevance,
    retrieval_label,
    strips,
    token_accuracy,
)
from selfcorrect_rag.evaluation.pooled import Pair, pooled_auc, share
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.short_answers import accuracy, match
from selfcorrect_rag.evaluation.statistics import Interval
from selfcorrect_rag.reflection import Group
from selfcorrect_rag.render.reading import number

Row = tuple[Question, Outcome]


class Measured(NamedTuple):
    """One part of a method, over its rows."""

    value: Interval
    """Its interval is over questions, each drawn with all its items."""
    questions: int
    """With something to measure."""
    items: int
    """Documents, strips or segments; questions where the part judges these."""
    labels: Mapping[str, int]
    """Questions whose labels are the row's (``row``), and those with a derived one
    (``derived``)."""


def _recall(question: Question, outcome: Outcome, k: int | None) -> Found[float] | None:
    """Whether a relevant document is among the first ``k``; None: among all."""
    found = relevance(question, outcome)
    return found and Found([float(any(found.items[:k]))], found.source)


def _action(question: Question, outcome: Outcome) -> Found[float] | None:
    """Whether CRAG's action is right: correct where some document is relevant, incorrect where none
    is (CRAG section 4.3). An ambiguous one is neither."""
    found = relevance(question, outcome)
    if found is None or outcome.action not in ("correct", "incorrect"):
        return None
    return Found([float((outcome.action == "correct") == any(found.items))], found.source)


def _ambiguous(question: Question, outcome: Outcome) -> Found[float] | None:
    return Found([float(outcome.action == "ambiguous")], "") if outcome.action else None


def _grades(question: Question, outcome: Outcome) -> Found[Pair] | None:
    """The evaluator's grades of documents, -1 to 1, with labels."""
    found = relevance(question, outcome)
    if found is None or len(outcome.grades) != len(found.items):
        return None
    return Found(list(zip(outcome.grades, found.items, strict=True)), found.source)


def _above(question: Question, outcome: Outcome) -> Found[float] | None:
    """Whether each document is relevant where its grade is above the upper threshold, and not where
    it is not."""
    graded, upper = _grades(question, outcome), outcome.thresholds.get("upper")
    if graded is None or upper is None:
        return None
    return Found([float((g > upper) == (label > 0)) for g, label in graded.items], graded.source)


def _relevant_strips(question: Question, outcome: Outcome) -> Found[float]:
    return Found([relevant for _, relevant in strips(question, outcome)], "derived")


def _strip_precision(question: Question, outcome: Outcome) -> Found[float]:
    return Found([relevant for kept, relevant in strips(question, outcome) if kept], "derived")


def _strip_recall(question: Question, outcome: Outcome) -> Found[float]:
    return Found(
        [float(kept) for kept, relevant in strips(question, outcome) if relevant], "derived"
    )


def _decision(question: Question, outcome: Outcome) -> Found[Pair] | None:
    """Self-RAG's probability that evidence is needed, with the row's label."""
    needed = retrieval_label(question)
    if needed is None or outcome.retrieval is None:
        return None
    return Found([(outcome.retrieval, needed)], "row")


def _decided(question: Question, outcome: Outcome) -> Found[float] | None:
    found = _decision(question, outcome)
    return found and Found([float(outcome.retrieved == (found.items[0][1] > 0))], "row")


def _confidence(question: Question, outcome: Outcome) -> Found[Pair] | None:
    """Self-RAG's probability of the answer's words (Eq. 3), the mean of its segments, with whether
    the answer is right. A refusal is left out: its probability is that of refusing."""
    said = [number(c.get("sequence_probability")) for c in outcome.candidates if c.get("chosen")]
    known = [probability for probability in said if probability is not None]
    right = (accuracy if question.choices else match)(question, outcome)
    if not known or len(known) < len(said) or right is None or not is_answered(outcome):
        return None
    return Found([(sum(known) / len(known), right)], "derived")


SCORES: Mapping[str, Callable[[Question, Outcome], Found[Pair] | None]] = {
    "grade": _grades,
    "ISREL": judged(Group.ISREL),
    "ISSUP": judged(Group.ISSUP),
    "ISUSE": judged(Group.ISUSE),
    "retrieval": _decision,
    "confidence": _confidence,
}
"""The scores of parts, each beside its label; each has an AUC."""
SHARES: Mapping[str, Callable[[Question, Outcome], Found[float] | None]] = {
    "recall_at_1": partial(_recall, k=1),
    "recall_at_5": partial(_recall, k=5),
    "recall": partial(_recall, k=None),
    "relevant_documents": relevance,
    "evaluator_accuracy": _above,
    "action_accuracy": _action,
    "ambiguous": _ambiguous,
    "relevant_strips": _relevant_strips,
    "strip_precision": _strip_precision,
    "strip_recall": _strip_recall,
    "ISREL_accuracy": token_accuracy(Group.ISREL),
    "ISSUP_accuracy": token_accuracy(Group.ISSUP),
    "ISUSE_accuracy": token_accuracy(Group.ISUSE),
    "retrieval_accuracy": _decided,
}
"""Shares of documents, strips, segments or questions."""
COMPONENTS = (*SHARES, *(f"{name}_auc" for name in SCORES))
PROBABILITIES = ("grade", "ISREL", "ISSUP", "confidence")
"""The scores that are calibrated; grades as (1 + grade) / 2."""


def components(rows: Sequence[Row]) -> dict[str, Measured | None]:
    """Each of ``COMPONENTS`` over the rows of one method; None where there is nothing to measure.

    A failed question says nothing about a part and is left out.

    Raises:
        MissingExtra: numpy is not installed.
    """
    measured: dict[str, Measured | None] = {}
    for name, share_of in SHARES.items():
        measured[name] = _measured(rows, share_of, share)
    for name, score_of in SCORES.items():
        measured[f"{name}_auc"] = _measured(rows, score_of, pooled_auc)
    return measured


def calibrations(rows: Sequence[Row]) -> dict[str, Reliability | None]:
    """The reliability of each of ``PROBABILITIES`` over the rows of one method.

    An evaluator that was trained by regression to -1 and 1 (CRAG appendix B.2) estimates 2p - 1 of
    a probability p, so a grade g is read as (1 + g) / 2. Of any other evaluator the curve says only
    whether higher grades are relevant more often.

    Raises:
        MissingExtra: numpy is not installed.
    """
    made: dict[str, Reliability | None] = {}
    for name in PROBABILITIES:
        found = [f.items for f in _found(rows, SCORES[name])]
        if name == "grade":
            found = [[((1 + grade) / 2, label) for grade, label in items] for items in found]
        made[name] = reliability(found)
    return made


def component_figures(rows: Sequence[Row]) -> dict[str, Any]:
    """``parts`` and ``calibration`` of one method as JSON values: what :func:`components` and
    :func:`calibrations` give."""
    parts = {
        name: found
        and {
            "value": found.value.value,
            "interval": found.value.ends,
            "questions": found.questions,
            "items": found.items,
            "labels": dict(found.labels),
        }
        for name, found in components(rows).items()
    }
    curves = {
        name: curve
        and {
            "error": curve.error.value,
            "interval": curve.error.ends,
            "questions": curve.questions,
            "items": curve.items,
            "bins": [
                {
                    "score": each.score,
                    "share": each.share.value,
                    "interval": each.share.ends,
                    "items": each.items,
                }
                for each in curve.bins
            ],
        }
        for name, curve in calibrations(rows).items()
    }
    return {"parts": parts, "calibration": curves}


def _found(rows: Sequence[Row], of: Callable[[Question, Outcome], Any]) -> list[Found[Any]]:
    made = (of(question, outcome) for question, outcome in rows if not outcome.error)
    return [found for found in made if found and found.items]


def _measured(
    rows: Sequence[Row],
    of: Callable[[Question, Outcome], Any],
    statistic: Callable[[Sequence[Sequence[Any]]], Interval | None],
) -> Measured | None:
    found = _found(rows, of)
    value = statistic([each.items for each in found])
    if value is None:
        return None
    sources = [each.source for each in found]
    return Measured(
        value,
        len(found),
        sum(len(each.items) for each in found),
        {source: sources.count(source) for source in ("row", "derived")},
    )
