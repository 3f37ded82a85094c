"""Faults of an evaluator."""

import math
from typing import Any

from tests.faults.cases import Seen, fault
from tests.faults.graphs import Parts, hangs, raises, seen

GRADED = ("crag", "self_crag")


def broken(graph: str, form: str, does: Any, after: int = 0, **context: Any) -> Seen:
    return seen(graph, form, lambda parts: parts.evaluator.breaks(does, after), context)


@fault("Evaluator", "raises", GRADED)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, raises(KeyError("no such label")))


@fault("Evaluator", "raises at strips", GRADED)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, raises(RuntimeError("CUDA out of memory")), after=1)


@fault("Evaluator", "raises after the first segment", ["self_crag"])
def _(graph: str, form: str) -> Seen:
    def late(parts: Parts) -> None:
        parts.retrieval = 0.0
        parts.evaluator.breaks(raises(RuntimeError("CUDA out of memory")))

    return seen(graph, form, late)


@fault("Evaluator", "hangs", GRADED)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, hangs, step_timeout=0.2)


@fault("Evaluator", "returns None", GRADED)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda texts: None)


@fault("Evaluator", "gives too few scores", GRADED)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda texts: [])


@fault("Evaluator", "gives NaN", GRADED)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda texts: [math.nan for _ in texts])


@fault("Evaluator", "gives percentages", GRADED)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda texts: [57.0 for _ in texts])


@fault("Evaluator", "gives verdicts in words", GRADED)
def _(graph: str, form: str) -> Seen:
    return broken(graph, form, lambda texts: ["relevant" for _ in texts])
