"""Judges the answers in a run's folder, which a killed judging goes on from.

``judgements.jsonl`` has a row for each prompt, appended as it comes; so nothing is judged twice,
equal answers of several methods are judged once, and an answer that changed is judged anew. Scores
are the metrics ``judged_`` with the judge's name.
"""

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.runnables import Runnable, RunnableConfig

from selfcorrect_rag.errors import BadRun, describe_error
from selfcorrect_rag.evaluation.costs import ANSWER_TOKENS, CHARACTERS, Bound, Spent
from selfcorrect_rag.evaluation.facts import penalised, topic_of
from selfcorrect_rag.evaluation.judges import (
    Case,
    Judgement,
    ajudge,
    alignment,
    correctness,
    facts,
    faithfulness,
    gives_structure,
)
from selfcorrect_rag.evaluation.metrics import score
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.evaluation.run import JUDGED, Finished, FirstErrors, Limits, together
from selfcorrect_rag.evaluation.statistics import bootstrap_mean
from selfcorrect_rag.evaluation.tasks import asked
from selfcorrect_rag.evaluation.texts import stated, text_of
from selfcorrect_rag.nodes.node import CallCounter
from selfcorrect_rag.old_journal import Journal, only_run

JUDGEMENTS = "judgements.jsonl"
Settled = float | None
"""A score that needs no judge; None where the question has nothing to judge by."""


def _correctness(question: Question, outcome: Outcome) -> Case | Settled:
    if not question.answers:
        return None
    said = stated(outcome)
    return correctness(asked(question), question.answers, said) if said.strip() else 0.0


def _faithfulness(question: Question, outcome: Outcome) -> Case | Settled:
    said, passages = stated(outcome), [text_of(passage) for passage in outcome.passages]
    return faithfulness(passages, said) if said.strip() and passages else 0.0


def _alignment(question: Question, outcome: Outcome) -> Case | Settled:
    if not question.answers:
        return None
    if not stated(outcome).strip():
        return 0.0
    return alignment(asked(question), question.answers, outcome.rationale or outcome.answer)


def _facts(question: Question, outcome: Outcome) -> Case | Settled:
    said = stated(outcome)
    return facts(topic_of(question), said) if said.strip() else 0.0


JUDGES: Mapping[str, Callable[[Question, Outcome], Case | Settled]] = {
    "correctness": _correctness,
    "faithfulness": _faithfulness,
    "alignment": _alignment,
    "facts": _facts,
}
"""By name. As strict metrics do, each scores 0 for a failed, refused or empty answer without
asking; faithfulness also for one without passages. Alignment is of the rationale, or of the answer
without one; facts are judged by what the model knows, so that all methods are judged by the same.
"""


class Judging(NamedTuple):
    """What one call of :func:`judge_run` did."""

    asked: int
    failed: int
    """Cases on which the model raised; they are asked again by the next call."""
    stopped: str
    """The bound that ended it: ``max_calls`` or ``max_tokens``; empty where nothing is left."""


def judge_run(
    folder: Path,
    finished: Finished,
    judges: Sequence[str],
    chat_model: Runnable[Any, Any],
    name: str,
    *,
    limits: Limits | None = None,
    on_done: Callable[[Mapping[str, Any]], object] = lambda row: None,
) -> Judging:
    """Ask for every judgement of a run that its folder has not yet.

    Args:
        folder: of the run.
        finished: the run, as :func:`~selfcorrect_rag.evaluation.run.read_run` gives it.
        judges: names, of :data:`JUDGES`.
        chat_model: the judge; asked first for structured output where it gives any.
        name: the model's. A folder holds judgements by one model.
        limits: bounds; no case begins that could exceed one.
        on_done: called with every new row of the journal.

    Raises:
        BadRun: no such judge, the folder holds judgements by another model, or another process
            works in it.
        AllFailed: the first cases, as many as are in flight and at least 8, all failed with one
            error; the folder keeps what is there.
        DiskFull: the disk is.
    """
    return asyncio.run(
        ajudge_run(folder, finished, judges, chat_model, name, limits=limits, on_done=on_done)
    )


async def ajudge_run(
    folder: Path,
    finished: Finished,
    judges: Sequence[str],
    chat_model: Runnable[Any, Any],
    name: str,
    *,
    limits: Limits | None = None,
    on_done: Callable[[Mapping[str, Any]], object] = lambda row: None,
) -> Judging:
    """The async twin of :func:`judge_run`."""
    limits = limits or Limits()
    with only_run(folder):
        journal = Journal(folder / JUDGEMENTS)
        cases = iter(_left(finished, judges, journal, name).items())
        bound = Bound(limits.calls, limits.tokens)
        first = FirstErrors(limits.concurrency)
        most_calls = 2 if gives_structure(chat_model) else 1
        done: Counter[bool] = Counter()

        async def work() -> None:
            for key, (kind, case) in cases:
                cost = Spent(most_calls, _cost(case).tokens)
                if not await bound.begin(cost):
                    return
                row = {"judge": kind, "model": name, **await _judged(chat_model, case)}
                journal.append(key, row)
                done[bool(row["error"])] += 1
                on_done(row)
                first.add(f"cases of {name}", row["error"])
                tokens = (row["prompt_tokens"] or 0) + (row["generated_tokens"] or 0)
                await bound.end(cost, Spent(row["model_calls"], tokens))

        await together(work, limits.concurrency)
    return Judging(done.total(), done[True], bound.reached)


def estimate_judging(
    folder: Path, finished: Finished, judges: Sequence[str], name: str
) -> dict[str, Spent]:
    """What :func:`judge_run` has still to spend, by judge, with a call for each case."""
    left = dict.fromkeys(judges, Spent())
    for kind, case in _left(finished, judges, Journal(folder / JUDGEMENTS), name).values():
        left[kind] = left[kind].plus(_cost(case))
    return left


def with_judgements(folder: Path, finished: Finished) -> tuple[Finished, dict[str, Any]]:
    """A run with the scores by its judges, and what the judges did, as JSON values.

    By judge: ``model``, ``calls``, and of each method how many answers were ``judged``, got ``no
    verdict``, ``failed``, or are ``left`` to judge. Of correctness also ``agreement``, see
    :func:`_agreement`.
    """
    journal = Journal(folder / JUDGEMENTS)
    kinds = {row["judge"]: row["model"] for row in journal.rows.values()}
    scores: dict[str, dict[str, dict[str, float | None]]] = {}
    said: dict[str, Any] = {}
    for kind in sorted(kinds, key=list(JUDGES).index):
        of_methods = scores[JUDGED + kind] = {name: {} for name in finished.methods}
        counts: dict[str, Counter[str]] = {name: Counter() for name in finished.methods}
        judged: list[tuple[Question, Outcome, Mapping[str, Any]]] = []
        for question, outcome in _rows(finished):
            case = JUDGES[kind](question, outcome)
            if not isinstance(case, Case):
                of_methods[outcome.method][outcome.id] = case
                continue
            row = journal.rows.get(_key(kind, case), {})
            of_methods[outcome.method][outcome.id] = row.get("score")
            counts[outcome.method][_state(row)] += 1
            judged += [(question, outcome, row)] if _state(row) == "judged" else []
        rows = [row for row in journal.rows.values() if row["judge"] == kind]
        said[kind] = {
            "model": kinds[kind],
            "calls": sum(row["model_calls"] for row in rows),
            "methods": {name: dict(found) for name, found in counts.items()},
        }
        if kind == "correctness":
            said[kind]["agreement"] = _agreement(finished, judged)
    return finished._replace(judged=scores), said


def _agreement(
    finished: Finished, judged: Sequence[tuple[Question, Outcome, Mapping[str, Any]]]
) -> dict[str, Any]:
    """How often the judge and the string match say the same of an answer that was judged.

    ``metric`` is ``match``, or ``accuracy`` for closed sets; ``methods`` have the share of equal
    verdicts with its interval, and ``differ`` has every answer on which they differ.
    """
    metric = "accuracy" if any(q.choices for q in finished.questions) else "match"
    matches = score([(question, outcome) for question, outcome, _ in judged], metric).rows
    same: dict[str, list[float]] = {}
    differ = []
    for (question, outcome, row), match in zip(judged, matches, strict=True):
        same.setdefault(outcome.method, []).append(float(row["score"] == match))
        if row["score"] != match:
            about = {"id": question.id, "method": outcome.method, "judge": row["score"]}
            differ.append({**about, metric: match, "explanation": row["explanation"]})
    shares = {name: bootstrap_mean(equal) for name, equal in same.items()}
    methods = {
        name: {"value": share.value, "interval": share.ends, "judged": len(same[name])}
        for name, share in shares.items()
    }
    return {"metric": metric, "methods": methods, "differ": differ}


def _rows(finished: Finished) -> Iterator[tuple[Question, Outcome]]:
    """Question by question, so that a judging that is stopped has compared what it has."""
    of: dict[str, list[Outcome]] = {}
    for outcome in finished.outcomes:
        of.setdefault(outcome.id, []).append(outcome)
    return (
        (question, outcome)
        for question in finished.questions
        for outcome in of.get(question.id, ())
    )


def _left(
    finished: Finished, judges: Sequence[str], journal: Journal, name: str
) -> dict[str, tuple[str, Case]]:
    """The cases that are still to be judged, by key."""
    if unknown := [kind for kind in judges if kind not in JUDGES]:
        raise BadRun(f"there is no judge {unknown[0]!r}: there are {', '.join(JUDGES)}")
    others = {row["model"] for row in journal.rows.values()} - {name}
    if others:
        raise BadRun(f"{journal.path} holds judgements by {others.pop()}, not by {name}: move it")
    left = {}
    for question, outcome in _rows(finished):
        for kind in judges:
            case = JUDGES[kind](question, outcome)
            if isinstance(case, Case) and _state(journal.rows.get(_key(kind, case), {})) in AGAIN:
                left[_key(kind, case)] = (kind, case)
    return left


AGAIN = ("left", "failed")
"""The states of cases that are asked by the next call."""


def _state(row: Mapping[str, Any]) -> str:
    if not row:
        return "left"
    if row["error"]:
        return "failed"
    return "no verdict" if row["score"] is None else "judged"


def score_of(case: Case, judgement: Judgement) -> float | None:
    """0 or 1, or FActScore of facts; None without a verdict."""
    if judgement.verdict is None:
        return None
    return penalised(judgement.facts) if case.of_facts else float(judgement.verdict)


async def _judged(chat_model: Runnable[Any, Any], case: Case) -> dict[str, Any]:
    """A judgement as fields of a row; where the model raises, with the error and no score."""
    counter, started = CallCounter(), time.perf_counter()
    found, error = Judgement(None, ""), ""
    try:
        found = await ajudge(chat_model, case, RunnableConfig(callbacks=[counter]))
    except Exception as raised:  # whatever it is, the other cases go on
        error = describe_error(raised)
    cost = counter.usage(round(time.perf_counter() - started, 3))
    calls = max(1, counter.model_calls)  # a model without callbacks is bounded too
    fields = {"score": score_of(case, found), **found._asdict(), **cost, "model_calls": calls}
    return {**fields, "error": error}


def _cost(case: Case) -> Spent:
    return Spent(1, len(case.prompt) / CHARACTERS + ANSWER_TOKENS)


def _key(kind: str, case: Case) -> str:
    return f"{kind}/{hashlib.sha256(case.prompt.encode()).hexdigest()}"
