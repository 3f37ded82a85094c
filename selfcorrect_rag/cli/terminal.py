"""Output of commands: nothing in it controls a terminal, whoever wrote the text."""

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from selfcorrect_rag.errors import one_line
from selfcorrect_rag.ui import visible

SECONDS_BETWEEN_LINES = 10
"""Between lines of progress, if no terminal shows a moving one."""


def tell(text: str = "", *, err: bool = False, **style: Any) -> None:
    """Print a text; ``style`` as in ``click.style``, for terminals only."""
    clear_line()
    click.secho(visible(text.replace("\r", " "), len(text)), err=err, **style)


def tell_json(value: Any) -> None:
    """Print ``value`` as JSON; documents are objects of id, text and metadata."""
    from selfcorrect_rag.ui.page import json_value

    clear_line()
    click.echo(json.dumps(value, default=json_value, indent=2))


def count(n: int, noun: str) -> str:
    """Return a number with its noun, in the singular for one."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def progress_line() -> Callable[[str], None]:
    """Return a function that shows progress on standard error: a moving line on a terminal, else a
    line every ten seconds."""
    last = time.monotonic()

    def show(text: str) -> None:
        nonlocal last
        if sys.stderr.isatty():
            clear_line()
            click.echo(one_line(text, 78), nl=False, err=True)
        elif time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            tell(text, err=True)

    return show


def clear_line() -> None:
    """Remove a moving line, for other output."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[2K", nl=False, err=True)


def show_answer(result: Mapping[str, Any]) -> None:
    """Print the cited answer, its sources with page, heading and quote, and the notes."""
    from selfcorrect_rag.ui.page import view

    answer = result["cited_answer"] or result["answer"]
    tell(answer, bold=True)
    for citation in view(result)["citations"]:
        title, source = citation["title"], citation["source"]
        page = citation.get("page") and f"page {citation['page']}"
        place = filter(None, [title, page, citation["heading"], source if source != title else ""])
        tell(f"[{citation['number']}] {', '.join(place)}")
        quote = citation.get("quote")
        if quote and quote not in answer:
            tell(f"    “{quote}”", dim=True)
    for note in result["notes"]:
        tell(f"note: {note}", fg="yellow")


def show_explanation(result: Mapping[str, Any], source: str, answers: str) -> None:
    """Print what led to the ``result`` of any graph with its ``seconds``: decision, passages with
    grades, strips, candidates, costs. ``source`` and ``answers`` name the index and the model."""
    from selfcorrect_rag.ui.page import number, view

    run, width = view(result), shutil.get_terminal_size().columns
    if retrieval := result.get("retrieval"):
        why = f" ({retrieval.get('mode', 'always')})"
        if (probability := retrieval.get("probability")) is not None:
            threshold = number(retrieval.get("threshold"))
            why = f", P(Retrieval) {number(probability)}, threshold {threshold}"
        tell(f"retrieval: {'yes' if retrieval.get('retrieve') else 'no'}{why}")
    if result.get("action"):
        best = max((g["score"] for g in result["grades"] if g["score"] is not None), default=None)
        tell(f"action: {result['action']}, best score {number(best, 3)}")
    if result.get("web_query"):
        searched = "nothing from" if result.get("web_failure") else "searched"
        tell(one_line(f"{searched} {result['web_source']} for: {result['web_query']}", width))
    for key, rows in run["documents"].items():
        if rows:
            tell(f"passages from {source}:" if key == "passages" else f"{key.replace('_', ' ')}:")
        for i, row in enumerate(rows, 1):
            grade = "" if row["grade"] is None else f"{number(row['grade'], 3)} "
            line = f"{key[0].upper()}{i} {grade}{row['title']}: {row['text']}"
            tell("  " + one_line(line, width - 2))
        if strips := [strip for row in rows for strip in row["strips"]]:
            kept = sum(strip["kept"] for strip in strips)
            tell(f"  {kept} of {count(len(strips), 'strip')} kept")
    if result.get("rationale"):
        tell(f"rationale:\n{result['rationale']}")
    if run["segments"]:
        tell("candidates:")
    for i, candidates in enumerate(run["segments"], 1):
        for row in candidates:
            place, letter = row["passage"], run["knowledge"][0].upper()
            read = "no passage" if place is None else f"{letter}{place + 1}"
            terms = ", ".join(f"{term['name']} {number(term['value'])}" for term in row["terms"])
            text = f"{row['text']} ({row['dropped']})" if row["dropped"] else row["text"]
            line = f"{i} {read}, score {number(row['path_score'])} ({terms}): {text}"
            tell(f"{'*' if row['chosen'] else ' '} {one_line(line, width - 2)}")
    for name, score in (result.get("options") or {}).items():
        tell(f"option {name}: {score:.2f}")
    usage = result["usage"]
    tell(f"steps: {' > '.join(step['step'] for step in result['route'])}", dim=True)
    read, written = usage["prompt_tokens"], usage["generated_tokens"]
    known = None not in (read, written)
    tokens = f"{read} tokens read, {written} written" if known else "tokens not reported"
    calls = f"{count(usage['model_calls'], 'model call')}, {tokens}, {result['seconds']:.1f} s"
    tell(f"{answers}: {calls}", dim=True)
