"""The end of the demo: plain RAG and the four graphs answer the same questions, side by side."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from selfcorrect_rag.commands.show import inert, say
from selfcorrect_rag.demo import demo_questions
from selfcorrect_rag.evaluation.matching import contains_answer
from selfcorrect_rag.evaluation.methods import Method, open_method, read_specs
from selfcorrect_rag.evaluation.rows import Outcome, Question
from selfcorrect_rag.serving.parts import Parts

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 3
RIGHT, UNANSWERED, WRONG = "right", "no answer", "wrong"
STYLES = {RIGHT: "green", UNANSWERED: "yellow", WRONG: "red"}

Row = tuple[Question, Sequence[Outcome]]
"""A question, and what each method answered: plain RAG first."""


def compare(console: "Console", parts: Parts, graphs: Sequence[str], every: int) -> None:
    """Ask, show a few questions that plain RAG fails, and count what all methods got right.

    Args:
        console: what is printed on.
        parts: the models and the demo corpora.
        graphs: as ``read_specs`` takes them.
        every: asks every so many of the questions of fact; 1: all.
    """
    questions = [
        Question(str(n), row["question"], tuple(row["answers"] or row["web_answers"]))
        for n, row in enumerate(demo_questions())
        if row["kind"] != "no_retrieval"
    ]
    asked = questions[::every]
    methods = [open_method(spec, parts) for spec in read_specs(["rag", *graphs], 5)]
    rows = asyncio.run(_ask(console, asked, methods))
    console.rule("[dim]plain RAG and the graphs, side by side[/dim]", align="left")
    for row in _telling(rows):
        _show_row(console, row)
    _show_counts(console, rows)
    say(
        console,
        (
            f"  {len(asked)} of the {len(questions)} questions of fact on the demo corpora; gained "
            "and lost against rag; crag and self_crag may search a second corpus",
            "dim",
        ),
    )


def verdict(question: Question, outcome: Outcome) -> str:
    """``right`` where the answer holds an accepted one, else ``no answer`` or ``wrong``."""
    if contains_answer(outcome.answer, question.answers):
        return RIGHT
    return UNANSWERED if outcome.refused or outcome.error else WRONG


async def _ask(
    console: "Console", questions: Sequence[Question], methods: Sequence[Method]
) -> list[Row]:
    """One after another, so that the seconds are those of one question."""
    rows: list[Row] = []
    with console.status("") as status:
        for question in questions:
            done = f"{len(rows)} of {len(questions)} questions"
            status.update(f"plain RAG and the graphs, side by side: {done}")
            rows.append((question, [await method.answer(question) for method in methods]))
    return rows


def _telling(rows: Sequence[Row]) -> list[Row]:
    """Questions that every graph gets right and plain RAG does not; its wrong answers first."""
    found = []
    for row in rows:
        plain, *graphs = (verdict(row[0], outcome) for outcome in row[1])
        if plain != RIGHT and set(graphs) == {RIGHT}:
            found.append((plain != WRONG, row))
    return [row for _, row in sorted(found, key=lambda pair: pair[0])][:SHOWN]


def _show_row(console: "Console", row: Row) -> None:
    from rich.table import Table
    from rich.text import Text

    question, outcomes = row
    say(console, (question.question, "bold"))
    table = Table(box=None, padding=(0, 1), pad_edge=True)
    for name in ("", "calls", "seconds", "", "answer"):
        right = name in ("calls", "seconds")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "answer")
    for outcome in outcomes:
        found = verdict(question, outcome)
        table.add_row(
            outcome.method,
            str(outcome.model_calls),
            f"{outcome.seconds:.2f}",
            Text(found, STYLES[found]),
            Text(inert(outcome.answer)),
        )
    console.print(table)
    console.print()


def _show_counts(console: "Console", rows: Sequence[Row]) -> None:
    from rich.table import Table

    plain = [verdict(question, outcomes[0]) == RIGHT for question, outcomes in rows]
    table = Table(box=None, padding=(0, 1), pad_edge=True)
    counts = (RIGHT, "gained", "lost", UNANSWERED, WRONG, "calls", "seconds")
    for name in ("", *counts):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for i, first in enumerate(rows[0][1]):
        found = [verdict(question, outcomes[i]) for question, outcomes in rows]
        right = [word == RIGHT for word in found]
        changed = list(zip(right, plain, strict=True))
        table.add_row(
            first.method,
            str(sum(right)),
            str(changed.count((True, False))),
            str(changed.count((False, True))),
            str(found.count(UNANSWERED)),
            str(found.count(WRONG)),
            str(sum(outcomes[i].model_calls for _, outcomes in rows)),
            f"{sum(outcomes[i].seconds for _, outcomes in rows):.1f}",
        )
    console.print(table)
