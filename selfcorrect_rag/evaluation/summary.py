"""The summary of a run: what each method did, cost and scored, and how each pair compares."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from selfcorrect_rag.errors import BadRun
from selfcorrect_rag.evaluation.abstention import curves
from selfcorrect_rag.evaluation.citations import Entails
from selfcorrect_rag.evaluation.components import component_figures
from selfcorrect_rag.evaluation.costs import asked_for
from selfcorrect_rag.evaluation.counts import count
from selfcorrect_rag.evaluation.metrics import score
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.run import Finished
from selfcorrect_rag.evaluation.statistics import (
    Comparison,
    Interval,
    bootstrap_mean,
    compare,
)
from selfcorrect_rag.evaluation.sweeps import Variants
from selfcorrect_rag.render.made import versions
from selfcorrect_rag.state import plus

SUMMARY = "summary.json"
ByQuestion = Mapping[str, float | None]
"""Scores by the question's id."""


class Scored(NamedTuple):
    """A method's scores by a metric."""

    value: float | None
    """None where no question can be scored."""
    interval: Interval | None
    """None where there is no value, or where it is of all rows at once, as MAUVE's."""
    rows: ByQuestion
    official: float | None
    """The same after the papers' scripts; None where these give nothing."""

    @property
    def counted(self) -> int:
        """Questions with a score of their own."""
        return sum(value is not None for value in self.rows.values())


def default_metrics(questions: Sequence[Question]) -> list[str]:
    """The metrics of the papers for questions of this kind."""
    if any(question.choices for question in questions):
        return ["accuracy"]
    if any("qa_pairs" in question.extra for question in questions):
        return ["str_em", "hit"]
    return ["match", "em", "f1"]


def scores(finished: Finished, metric: str, entails: Entails | None = None) -> dict[str, Scored]:
    """Each method's scores by a metric, also a judge's, on the questions that it was asked;
    ``entails`` as in :func:`~selfcorrect_rag.evaluation.metrics.score`."""
    if metric in finished.judged:
        return {name: _judged(rows) for name, rows in finished.judged[metric].items()}
    questions = {question.id: question for question in finished.questions}
    found = {}
    for method in finished.methods:
        rows = [(questions[outcome.id], outcome) for outcome in finished.of(method)]
        strict = score(rows, metric, entails=entails)
        ran = [row for row in rows if not row[1].error]
        found[method] = Scored(
            strict.value,
            _interval(strict.rows),
            {q.id: value for (q, _), value in zip(rows, strict.rows, strict=False)},
            score(ran, metric, "official", entails=entails).value,
        )
    return found


def _judged(rows: ByQuestion) -> Scored:
    interval = _interval(rows.values())
    return Scored(interval and interval.value, interval, rows, None)


def _interval(scores: Iterable[float | None]) -> Interval | None:
    known = [value for value in scores if value is not None]
    return bootstrap_mean(known) if known else None


def pairs(scored: Mapping[str, Scored], wanted: Iterable[tuple[str, str]]) -> list[Comparison]:
    """The pairs of methods ``wanted`` that have a score of one question or more in common."""
    usable = {name: found.rows for name, found in scored.items() if found.counted}
    return [
        compare(usable[one], usable[other], (one, other))
        for one, other in wanted
        if {one, other} <= usable.keys() and _scored(usable[one]) & _scored(usable[other])
    ]


def compared(
    one: Finished,
    other: Finished,
    metric: str,
    entails: tuple[Entails | None, Entails | None] = (None, None),
) -> list[Comparison]:
    """Two runs by a metric: each method with itself, or all with all where no name is in both.

    ``entails`` is each run's entailment model, for citations.

    Raises:
        BadRun: the runs have no question in common, or one of the same id is another.
    """
    left, right = ({q.id: q.question for q in run.questions} for run in (one, other))
    common = left.keys() & right.keys()
    if not common:
        raise BadRun("the runs have no question in common")
    if unlike := [key for key in sorted(common) if left[key] != right[key]]:
        raise BadRun(f"the runs are of other tasks: question {unlike[0]} is not the same")
    first, second = scores(one, metric, entails[0]), scores(other, metric, entails[1])
    same = [(name, name) for name in first if name in second]
    return [
        compare(first[a].rows, second[b].rows, (f"A {a}", f"B {b}"))
        for a, b in same or [(a, b) for a in first for b in second]
        if _scored(first[a].rows) & _scored(second[b].rows)
    ]


def _scored(rows: ByQuestion) -> set[str]:
    return {key for key, value in rows.items() if value is not None}


def summary(
    finished: Finished,
    metrics: Sequence[str],
    about: Mapping[str, Any],
    variants: Variants | None = None,
    *,
    entails: Entails | None = None,
) -> dict[str, Any]:
    """The summary as JSON values.

    Args:
        finished: the run.
        metrics: names of metrics.
        about: the run's settings and fingerprints.
        variants: its sweeps, and the pairs to compare; None: no sweeps, and all pairs.
        entails: an entailment model, for citations.
    """
    scored = {metric: scores(finished, metric, entails) for metric in metrics}
    questions = {question.id: question for question in finished.questions}
    methods = {
        name: {
            **count(finished.of(name))._asdict(),
            **_cost(finished.of(name)),
            "metrics": {metric: _figures(found[name]) for metric, found in scored.items()},
        }
        for name in finished.methods
    }
    wanted = variants.pairs if variants else list(combinations(methods, 2))
    return {
        "versions": versions(),
        "about": dict(about),
        "questions": len(finished.questions),
        "stopped": finished.stopped,
        "methods": methods,
        "comparisons": {
            metric: [comparison_figures(pair) for pair in pairs(found, wanted)]
            for metric, found in scored.items()
        },
        "pairs": wanted,
        "sweeps": [sweep._asdict() for sweep in variants.sweeps] if variants else [],
        "components": {
            name: component_figures([(questions[o.id], o) for o in finished.of(name)])
            for name in finished.methods
        },
        "abstention": {
            metric: curves(finished, {name: one.rows for name, one in found.items()})
            for metric, found in list(scored.items())[:1]
        },
    }


def write_summary(folder: Path, made: Mapping[str, Any]) -> None:
    """Write ``summary.json`` into a run's folder, whole or not at all."""
    draft = folder / f"{SUMMARY}.draft"
    draft.write_text(json.dumps(made, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(draft, folder / SUMMARY)


def _cost(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Totals, and the mean words of an answer; tokens are None where a model said none of some
    question."""
    read: int | None = 0
    written: int | None = 0
    for outcome in outcomes:
        read, written = plus(read, outcome.prompt_tokens), plus(written, outcome.generated_tokens)
    return {
        "model_calls": sum(outcome.model_calls for outcome in outcomes),
        "prompt_tokens": read,
        "generated_tokens": written,
        "seconds": round(sum(outcome.seconds for outcome in outcomes), 3),
        "asked_calls": sum(asked_for(outcome).calls for outcome in outcomes),
        "asked_tokens": sum(asked_for(outcome).tokens for outcome in outcomes),
        "words": mean([len(outcome.answer.split()) for outcome in outcomes]),
    }


def _figures(found: Scored) -> dict[str, Any]:
    return {
        "value": found.value,
        "interval": None if found.interval is None else found.interval.ends,
        "scored": found.counted,
        "official": found.official,
    }


def comparison_figures(pair: Comparison) -> dict[str, Any]:
    """A comparison as JSON values."""
    return {
        "first": pair.first,
        "second": pair.second,
        "difference": pair.difference.value,
        "interval": pair.difference.ends,
        "mcnemar": pair.mcnemar,
        "questions": pair.rows,
        "told_apart": pair.told_apart,
        "in_words": str(pair),
    }
