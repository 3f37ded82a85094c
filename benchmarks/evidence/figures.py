"""The figures of docs/evidence.md, computed from the rows of its runs; no model is asked."""

import hashlib
import os
import platform
from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document

from benchmarks.evidence.runs import NAMED, SWEEPS, Runs
from benchmarks.evidence.sets import Asked, Set
from selfcorrect_rag.evaluation.components import component_figures
from selfcorrect_rag.evaluation.counts import is_answered
from selfcorrect_rag.evaluation.matching import answer_words, contains_answer
from selfcorrect_rag.evaluation.rows import Outcome
from selfcorrect_rag.evaluation.run import Finished
from selfcorrect_rag.evaluation.short_answers import match
from selfcorrect_rag.evaluation.statistics import bootstrap_mean
from selfcorrect_rag.evaluation.summary import comparison_figures, pairs, scores
from selfcorrect_rag.evaluation.sweeps import read_variants
from selfcorrect_rag.evaluation.tasks import question_hash
from selfcorrect_rag.reader.network import SHIPPED
from selfcorrect_rag.render.made import versions
from selfcorrect_rag.serving.config import ServingConfig

ORDER = (
    ("self_crag", "self_rag"),
    ("self_rag", "rag"),
    ("self_rag", "rag_first"),
    ("self_rag", "likelihood"),
    ("crag", "rag"),
    ("crag", "rag_first"),
    ("instruct_rag", "ralm"),
)
"""The papers' order: the first of each pair is better."""
ALIKE = (("self_rag", "likelihood"), ("instruct_rag", "self_rag"), ("self_crag", "crag"))
"""Methods that give the reader's answers much the same way."""
REMOVED = 0.4
"""Share of questions whose gold passages are removed in the main table."""
AS_SHIPPED = tuple(method for method in NAMED if method != "likelihood")
"""Methods as the package has them; its confidence is that of the default weights."""
SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
CURVES = ("rag_first", "rag", "self_rag", "crag", "self_crag")
METRIC = "match"


def figures_of(found: Set, runs: Runs) -> dict[str, Any]:
    """Everything that the page says of one set, as JSON values."""
    answerable = {a.question.id for a in found.asked if not a.question.unanswerable}
    whole, removed = (_only(run, answerable) for run in (runs.whole, runs.removed(REMOVED)))
    return {
        "title": found.title,
        "seen": found.seen,
        "questions": len(runs.whole.questions),
        "answerable": len(answerable),
        "hashes": [question_hash(a.question.question)[:16] for a in found.asked],
        "whole": _compared(whole),
        "removed": _compared(removed),
        "by_share": {
            method: [
                _mean(_matches(_only(runs.removed(share), answerable), method)) for share in SHARES
            ]
            for method in CURVES
        },
        "shipped": {method: _as_shipped(runs.shipped, method) for method in AS_SHIPPED},
        "alike": [{"pair": pair, **_mean(_alike(whole, *pair))} for pair in ALIKE],
        "stages": _stages(found, whole),
        "components": {
            method: component_figures(_rows(whole, method)) for method in ("self_rag", "crag")
        },
        "sweeps": _sweeps(whole, removed) if found.sweeps else [],
        "costs": {method: _cost(runs.alone.of(method)) for method in NAMED},
    }


def about(config: ServingConfig) -> dict[str, Any]:
    """What the figures were made with."""
    reader = hashlib.sha256((SHIPPED / "reader.safetensors").read_bytes()).hexdigest()[:16]
    options = config.model_dump(mode="json", exclude_defaults=True)
    return {
        "versions": versions(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "reader": reader,
        "options": options,
    }


def _only(run: Finished, ids: set[str]) -> Finished:
    return run._replace(
        questions=[q for q in run.questions if q.id in ids],
        outcomes=[o for o in run.outcomes if o.id in ids],
    )


def _rows(run: Finished, method: str) -> list[tuple[Any, Outcome]]:
    questions = {question.id: question for question in run.questions}
    return [(questions[outcome.id], outcome) for outcome in run.of(method)]


def _matches(run: Finished, method: str) -> list[float]:
    return [value for q, o in _rows(run, method) if (value := match(q, o)) is not None]


def _mean(values: Sequence[float]) -> dict[str, Any]:
    """The mean and the ends of its 95 % bootstrap interval."""
    found = bootstrap_mean(values)
    return {"value": found.value, "interval": found.ends}


def _compared(run: Finished) -> dict[str, Any]:
    """Each method's mean match, and the pairs of the papers' order."""
    scored = scores(run, METRIC)
    return {
        "methods": {method: _mean(_matches(run, method)) for method in NAMED},
        "pairs": [comparison_figures(pair) for pair in pairs(scored, ORDER)],
    }


def _alike(run: Finished, first: str, second: str) -> list[float]:
    """Whether two methods give equal answers, question by question."""
    one, other = ({o.id: answer_words(o.answer) for o in run.of(name)} for name in (first, second))
    return [float(answer == other[key]) for key, answer in one.items()]


def _as_shipped(run: Finished, method: str) -> dict[str, Any]:
    """Shares of all questions: answered right, answered wrong, refused."""
    rows = _rows(run, method)
    answered = [is_answered(outcome) for _, outcome in rows]
    right = [said and match(q, o) == 1 for said, (q, o) in zip(answered, rows, strict=True)]
    wrong = [said and not good for said, good in zip(answered, right, strict=True)]
    return {
        "right": _mean([float(value) for value in right]),
        "wrong": _mean([float(value) for value in wrong]),
        "refused": _mean([float(not value) for value in answered]),
    }


def _stages(found: Set, run: Finished) -> dict[str, Any]:
    """Of Self-RAG over the whole index, shares of questions: a passage that answers was retrieved;
    some candidate is right; the chosen one is."""
    asked = {each.question.id: each for each in found.asked}
    rows = _rows(run, "self_rag")
    read = [any(contains_answer(str(c["text"]), q.answers) for c in o.candidates) for q, o in rows]
    return {
        "retrieved": _mean([float(_has_gold(asked[q.id], o)) for q, o in rows]),
        "read": _mean([float(value) for value in read]),
        "chosen": _mean(_matches(run, "self_rag")),
    }


def _has_gold(asked: Asked, outcome: Outcome) -> bool:
    return any(
        asked.is_gold(Document(d["text"], metadata={"title": d["title"], "source": d["source"]}))
        for d in outcome.documents
    )


def _sweeps(whole: Finished, removed: Finished) -> list[dict[str, Any]]:
    """Each sweep, with the mean match and the share retrieved at each value: ablations where gold
    passages are removed, for they change nothing where nothing is corrected."""
    made = []
    for sweep in read_variants((), SWEEPS, None).sweeps:
        run = removed if sweep.knob == "ablations" else whole
        points = [
            {
                "at": at,
                **_mean(_matches(run, name)),
                "retrieved": _share([o.retrieved for o in run.of(name)]),
            }
            for at, name in zip(sweep.values, sweep.variants, strict=True)
        ]
        made.append({"method": sweep.method, "knob": sweep.knob, "points": points})
    return made


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


def _cost(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Means over questions."""
    calls = sum(outcome.model_calls for outcome in outcomes) / len(outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes) / len(outcomes)
    return {"calls": round(calls, 2), "seconds": round(seconds, 3)}
