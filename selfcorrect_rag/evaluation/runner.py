"""Runs methods over questions into a folder, from which a killed run is resumed.

The folder holds ``settings.json``, ``questions.jsonl`` and ``rows.jsonl``: one Outcome a line,
appended as it comes; of two with one key the last counts.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from selfcorrect_rag.errors import BadRun, SelfCorrectError
from selfcorrect_rag.evaluation.methods import Method, Spec
from selfcorrect_rag.evaluation.outcomes import Outcome, outcome_from
from selfcorrect_rag.evaluation.tasks import Question, fingerprint
from selfcorrect_rag.journal import Journal, open_run, read_settings, write_rows

ROWS, QUESTIONS, METHOD = "rows.jsonl", "questions.jsonl", "method:"
FAILURES = 8
"""Questions of a method, at least, that must all fail with one error before a run gives up."""


class AllFailed(SelfCorrectError, RuntimeError):
    """The first questions of a method all failed with one error."""


class Run(NamedTuple):
    """The contents of the folder of a run."""

    questions: list[Question]
    """Without their passages if read from a folder."""
    outcomes: list[Outcome]
    """Method by method, in the order of the questions; those that ended."""
    stopped: str = ""
    """``max_calls`` or ``max_tokens`` if this bound ended the run."""

    @property
    def methods(self) -> list[str]:
        """The names of the methods, in order."""
        return list(dict.fromkeys(outcome.method for outcome in self.outcomes))

    def of(self, method: str) -> list[Outcome]:
        """The outcomes of a method, in the order of the questions."""
        return [outcome for outcome in self.outcomes if outcome.method == method]


class Limits(NamedTuple):
    """Bounds of one call of :func:`run_methods`."""

    calls: int | None = None
    """Model calls after which no question begins."""
    tokens: int | None = None
    """Tokens read and written, as far as models report them, after which none begins."""
    concurrency: int = 16
    """Questions in flight at a time."""


def run_methods(
    questions: Sequence[Question], methods: Sequence[Method], out: Path, **options: Any
) -> Run:
    """The sync twin of :func:`arun_methods`."""
    return asyncio.run(arun_methods(questions, methods, out, **options))


async def arun_methods(
    questions: Sequence[Question],
    methods: Sequence[Method],
    out: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    on_done: Callable[[Outcome], object] = lambda outcome: None,
) -> Run:
    """Ask every method every question that has no answer in the folder yet.

    Questions go through all methods one after another, so that a stopped run has compared what it
    has. A failed question is a row with its error, which the next run asks again.

    Args:
        questions: each with its own id.
        methods: each with its own name.
        out: the folder of the run.
        settings: what else decides the answers, as JSON values (models, index). A folder with
            other settings is refused; methods and questions may be added.
        limits: bounds of what this call adds.
        on_done: called with every new outcome.

    Raises:
        BadRun: the folder holds another run or foreign files, or another process uses it; or two
            questions have one id.
        AllFailed: the first questions of a method all failed alike; the folder keeps its rows.
    """
    if len({question.id for question in questions}) < len(questions):
        raise BadRun("two questions have the same id: ids must be unique")
    limits = limits or Limits()
    specs = {f"{METHOD}{method.name}": method.spec.as_json() for method in methods}
    with open_run(out, {**(settings or {}), **specs}, grows=METHOD):
        _write_questions(out, questions)
        journal = Journal(out / ROWS)
        left = [(q, m) for q in questions for m in methods if not is_done(journal, m.name, q)]
        stopped = await _ask(iter(left), journal, limits, on_done)
    names = [method.name for method in methods]
    return Run(list(questions), _outcomes(questions, names, journal), stopped)


async def _ask(
    left: Iterator[tuple[Question, Method]],
    journal: Journal,
    limits: Limits,
    on_done: Callable[[Outcome], object],
) -> str:
    """Ask what is left, and return the name of the bound that stopped it."""
    first = max(FAILURES, limits.concurrency)
    errors: dict[str, list[str]] = {}
    calls = tokens = 0
    stopped = ""

    async def work() -> None:
        nonlocal calls, tokens, stopped
        while True:
            if limits.calls is not None and calls >= limits.calls:
                stopped = "max_calls"
            if limits.tokens is not None and tokens >= limits.tokens:
                stopped = "max_tokens"
            pair = None if stopped else next(left, None)
            if pair is None:
                return
            question, method = pair
            outcome = await method.answer(question)
            journal.append(f"{method.name}/{question.id}", outcome._asdict())
            calls += outcome.model_calls
            tokens += (outcome.prompt_tokens or 0) + (outcome.generated_tokens or 0)
            on_done(outcome)
            seen = errors.setdefault(method.name, [])
            seen.append(outcome.error)
            if len(seen) == first and outcome.error and len(set(seen)) == 1:
                raise AllFailed(
                    f"the first {first} questions of {method.name} all failed: {outcome.error}; "
                    "run the same command again to resume"
                )

    workers = [asyncio.create_task(work()) for _ in range(max(1, limits.concurrency))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return stopped if next(left, None) else ""


def is_done(journal: Journal, method: str, question: Question) -> bool:
    """Whether a method has answered a question without failing."""
    row = journal.rows.get(f"{method}/{question.id}")
    return row is not None and not row["error"]


def count_left(questions: Sequence[Question], specs: Sequence[Spec], out: Path) -> int:
    """How many answers the run in the folder ``out`` still needs."""
    journal = Journal(out / ROWS)
    asked = [spec for spec in specs if not spec.reweighs]
    return sum(not is_done(journal, spec.name, q) for spec in asked for q in questions)


def read_run(folder: Path) -> tuple[Run, dict[str, Any]]:
    """Read a run and its settings.

    Raises:
        BadRun: there is no run in the folder.
    """
    settings = read_settings(folder)
    try:
        questions = [_question_from(row) for row in _question_rows(folder).values()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadRun(f"{folder} does not hold a run of eval ({error})") from error
    names = [name.removeprefix(METHOD) for name in settings if name.startswith(METHOD)]
    return Run(questions, _outcomes(questions, names, Journal(folder / ROWS))), settings


def _outcomes(
    questions: Sequence[Question], methods: Sequence[str], journal: Journal
) -> list[Outcome]:
    keys = [f"{method}/{question.id}" for method in methods for question in questions]
    return [outcome_from(journal.rows[key]) for key in keys if key in journal.rows]


def _write_questions(folder: Path, questions: Sequence[Question]) -> None:
    """Write the questions of a run, and keep those of earlier ones.

    Raises:
        BadRun: a question of the same id was another.
    """
    kept = _question_rows(folder) if (folder / QUESTIONS).exists() else {}
    for question in questions:
        # Of its passages only a digest: rows of answers have those that were read.
        row = {**question._asdict(), "passages": question.passages and fingerprint([question])}
        row = json.loads(json.dumps(row, default=str))
        if kept.setdefault(question.id, row) != row:
            raise BadRun(f"{folder} holds a run with another question {question.id}")
    write_rows(folder / QUESTIONS, kept.values())


def _question_rows(folder: Path) -> dict[str, dict[str, Any]]:
    lines = (folder / QUESTIONS).read_text(encoding="utf-8").splitlines()
    return {row["id"]: row for row in map(json.loads, lines)}


def _question_from(row: Mapping[str, Any]) -> Question:
    return Question(**{**row, "answers": tuple(row["answers"]), "passages": None})
