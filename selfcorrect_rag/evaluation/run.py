"""Runs methods over the questions of a task into a folder, which a killed run goes on from.

The folder holds ``rows.jsonl`` (one Outcome a line, appended as it comes; of two with one key the
last counts), ``questions.jsonl`` and ``settings.json``; what is written of them afterwards is in
:mod:`selfcorrect_rag.evaluation.summary`.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from selfcorrect_rag.errors import BadRun, SelfCorrectError
from selfcorrect_rag.evaluation.costs import Bound, Known, Spent, asked_for
from selfcorrect_rag.evaluation.methods import Method, Spec
from selfcorrect_rag.evaluation.outcomes import outcome_from, question_from, question_row
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.old_journal import Journal, only_run, write_rows

ROWS, QUESTIONS, SETTINGS = "rows.jsonl", "questions.jsonl", "settings.json"
JUDGED = "judged_"
"""Before the name of a judge in the name of its metric."""
METHOD = "method "
"""Before the name of a method among the settings."""


LEAST_FAILURES = 8
"""Questions of a method, or cases of a judge, that must all fail alike before a run gives up."""


class AllFailed(SelfCorrectError, RuntimeError):
    """The first questions, or cases of a judge, all failed with one error; the message has it."""


class Limits(NamedTuple):
    """Bounds of one run, of what it adds to its folder."""

    calls: int | None = None
    """Model calls; None is no bound."""
    tokens: int | None = None
    """Tokens read and written, as far as models report them."""
    concurrency: int = 16
    """Questions in flight at a time."""


class Finished(NamedTuple):
    """What is in the folder of a run."""

    questions: list[Question]
    outcomes: list[Outcome]
    """Method by method in the order of the questions; those of the run alone that ended."""
    asked: int = 0
    """Questions asked by this run; the others were there before."""
    stopped: str = ""
    """The bound that ended it: ``max_calls`` or ``max_tokens``; empty where nothing is left."""
    judged: Mapping[str, Mapping[str, Mapping[str, float | None]]] = {}
    """Scores by judges, where there are any: by metric, method and the question's id."""

    @property
    def methods(self) -> list[str]:
        """The names of the methods, in order."""
        return list(dict.fromkeys(outcome.method for outcome in self.outcomes))

    def of(self, method: str) -> list[Outcome]:
        """The outcomes of a method, in the order of the questions."""
        return [outcome for outcome in self.outcomes if outcome.method == method]


def run_methods(
    questions: Sequence[Question],
    methods: Sequence[Method],
    out: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    batches: bool = True,
    shared: bool = False,
    on_done: Callable[[Outcome], object] = lambda outcome: None,
) -> Finished:
    """Ask every method every question that has no answer in the folder yet.

    Questions go through all methods one after another, so that a run that is stopped has compared
    what it has. A question that fails is a row with its error, and is asked again by the next run.
    Where the first ones of a method all fail with one error, as many as are in flight and at least
    8, the run ends: an endpoint is dead, or a key is missing.

    Args:
        questions: of one task, each with an id of its own.
        methods: each with a name of its own.
        out: the folder, which is made where there is none.
        settings: what else decides the answers, as JSON values: data, models, index. A folder with
            others is refused, but methods may be added.
        limits: bounds; no question begins once one is reached.
        batches: see :func:`~selfcorrect_rag.evaluation.costs.expected`.
        shared: see :class:`~selfcorrect_rag.evaluation.costs.Known`.
        on_done: called with every new outcome.

    Raises:
        BadRun: the folder holds a run of other settings or rows of no run, another process works
            in it, or two questions have one id.
        AllFailed: the first questions of a method all failed alike; the folder keeps its rows.
        DiskFull: the disk is.
    """
    return asyncio.run(
        arun_methods(
            questions,
            methods,
            out,
            settings=settings,
            limits=limits,
            batches=batches,
            shared=shared,
            on_done=on_done,
        )
    )


async def arun_methods(
    questions: Sequence[Question],
    methods: Sequence[Method],
    out: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    batches: bool = True,
    shared: bool = False,
    on_done: Callable[[Outcome], object] = lambda outcome: None,
) -> Finished:
    """The async twin of :func:`run_methods`."""
    limits = limits or Limits()
    _refuse_twins(questions)
    with only_run(out):
        specs = [method.spec for method in methods]
        _keep_settings(out, {**(settings or {}), **_of_methods(specs)})
        _keep_questions(out, questions)
        journal = Journal(out / ROWS)
        left = [
            (question, method)
            for question in questions
            for method in methods
            if not _is_done(journal, method.name, question)
        ]
        known = Known(map(outcome_from, journal.rows.values()), batches=batches, shared=shared)
        bound = Bound(limits.calls, limits.tokens)
        asking = _Asking(left, known, journal, bound, on_done, limits.concurrency)
        await together(asking.work, limits.concurrency)
        outcomes = _outcomes(questions, [spec.name for spec in specs], journal)
        return Finished(list(questions), outcomes, asking.asked, bound.reached)


def estimate_run(
    questions: Sequence[Question],
    specs: Sequence[Spec],
    out: Path,
    *,
    batches: bool = True,
    shared: bool = False,
) -> dict[str, Spent]:
    """What each method adds to what the run in the folder ``out`` has still to spend; nothing is
    asked."""
    journal = Journal(out / ROWS)
    known = Known(map(outcome_from, journal.rows.values()), batches=batches, shared=shared)
    left: dict[str, Spent] = {}
    for spec in specs:
        costs = [known.begin(spec, q) for q in questions if not _is_done(journal, spec.name, q)]
        left[spec.name] = Spent(*map(sum, zip(*costs, strict=True))) if costs else Spent()
    return left


def count_left(questions: Sequence[Question], specs: Sequence[Spec], out: Path) -> int:
    """How many answers the run in the folder ``out`` has still to get."""
    journal = Journal(out / ROWS)
    return sum(not _is_done(journal, spec.name, q) for spec in specs for q in questions)


def read_run(folder: Path) -> tuple[Finished, dict[str, Any]]:
    """A run's questions and outcomes, and its settings.

    Raises:
        BadRun: there is no run in the folder, or its rows are of no run.
    """
    try:
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        lines = (folder / QUESTIONS).read_text(encoding="utf-8").splitlines()
        questions = [question_from(json.loads(line)) for line in lines]
    except (OSError, ValueError, KeyError) as error:
        raise BadRun(f"{folder} holds no run of eval ({error})") from error
    names = [name.removeprefix(METHOD) for name in settings if name.startswith(METHOD)]
    return Finished(questions, _outcomes(questions, names, Journal(folder / ROWS))), settings


async def together(work: Callable[[], Coroutine[Any, Any, None]], workers: int) -> None:
    """Run ``work`` as often at a time; an exception of one ends them all."""
    tasks = [asyncio.create_task(work()) for _ in range(max(1, workers))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class FirstErrors:
    """Gives up where whatever is asked first fails, as often as is in flight and at least ``least``
    times, with one error: an endpoint is dead, or a key is missing. ``remedy`` ends the message."""

    def __init__(
        self,
        concurrency: int,
        *,
        least: int = LEAST_FAILURES,
        remedy: str = "the same command goes on",
    ) -> None:
        self._most, self._remedy = max(least, concurrency), remedy
        self._errors: dict[str, list[str]] = {}

    def add(self, of: str, error: str) -> None:
        """Count one that ended; ``of`` says what it is, ``error`` is empty if it did not fail.

        Raises:
            AllFailed: all failed alike.
        """
        errors = self._errors.setdefault(of, [])
        if len(errors) == self._most:
            return
        errors.append(error)
        if len(errors) == self._most and error and len(set(errors)) == 1:
            raise AllFailed(f"the first {self._most} {of} all failed: {error}; {self._remedy}")


class _Asking:
    """The questions of one run, and the workers that ask them."""

    def __init__(
        self,
        left: Sequence[tuple[Question, Method]],
        known: Known,
        journal: Journal,
        bound: Bound,
        on_done: Callable[[Outcome], object],
        concurrency: int,
    ) -> None:
        self._left, self._known, self._journal = iter(left), known, journal
        self._bound, self._on_done = bound, on_done
        self._first = FirstErrors(concurrency)
        self.asked = 0

    async def work(self) -> None:
        """Ask one question after another; all workers share what is left."""
        for question, method in self._left:
            cost = self._known.begin(method.spec, question)
            if not await self._bound.begin(cost):
                return
            outcome = await method.answer(question)
            self._journal.append(_key(method.name, question), outcome._asdict())
            self._known.add(outcome)
            self.asked += 1
            self._on_done(outcome)
            self._first.add(f"questions of {method.name}", outcome.error)
            await self._bound.end(cost, asked_for(outcome))


def _outcomes(
    questions: Sequence[Question], methods: Sequence[str], journal: Journal
) -> list[Outcome]:
    keys = [_key(method, question) for method in methods for question in questions]
    return [outcome_from(journal.rows[key]) for key in keys if key in journal.rows]


def _key(method: str, question: Question) -> str:
    return f"{method}/{question.id}"


def _is_done(journal: Journal, method: str, question: Question) -> bool:
    row = journal.rows.get(_key(method, question))
    return row is not None and not row["error"]


def _refuse_twins(questions: Sequence[Question]) -> None:
    seen: set[str] = set()
    for question in questions:
        if question.id in seen:
            raise BadRun(f"two questions have the id {question.id}")
        seen.add(question.id)


def _of_methods(specs: Sequence[Spec]) -> dict[str, Any]:
    return {f"{METHOD}{spec.name}": spec.as_json() for spec in specs}


def _keep_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Keep a run's settings; its methods may grow, all else stays."""
    file = folder / SETTINGS
    given = json.loads(json.dumps(settings))
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    others = [name for name in given if name in kept and kept[name] != given[name]]
    if others:
        raise BadRun(
            f"{folder} holds a run with other settings ({', '.join(others)}): give another place"
        )
    write_rows(file, [{**kept, **given}])


def _keep_questions(folder: Path, questions: Sequence[Question]) -> None:
    """Keep what is asked; a run that is given fewer questions keeps the others too.

    Raises:
        BadRun: a question of the same id was another.
    """
    file = folder / QUESTIONS
    kept: dict[str, Any] = {}
    if file.exists():
        lines = file.read_text(encoding="utf-8").splitlines()
        kept = {row["id"]: row for row in map(json.loads, lines)}
    for question in questions:
        row = json.loads(json.dumps(question_row(question)))
        if kept.setdefault(question.id, row) != row:
            raise BadRun(f"{folder} holds a run in which question {question.id} is another")
    write_rows(file, kept.values())
