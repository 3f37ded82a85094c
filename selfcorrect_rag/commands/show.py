"""Results as a person reads them in a terminal: what all graphs share, and Self-RAG's."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document

from selfcorrect_rag.errors import require
from selfcorrect_rag.render.reading import why_uncited
from selfcorrect_rag.state.self_rag import Candidate, Decision
from selfcorrect_rag.state.sources import place, source_of, title_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

Styled = str | tuple[str, str]
"""Text, or text and its style."""


def console() -> "Console":
    """Where results are printed."""
    made: Console = require("rich.console", "demo").Console(highlight=False)
    return made


def show_result(console: "Console", result: dict[str, Any], seconds: float, source: str) -> None:
    """Print the retrieval decision, passages, candidates, the cited answer and what it took."""
    show_question(console, result)
    show_decision(console, result["retrieval"])
    if result["passages"]:
        say(console, (f"  passages from {source}:", "dim"))
        show_documents(console, "P", result["passages"])
    show_candidates(console, result["candidates"], "P")
    show_answer(console, result)
    show_end(console, result, seconds)


def say(console: "Console", *parts: Styled, cut: bool = False) -> None:
    """Print a line of parts, inert whatever they hold; ``cut`` to the width of the terminal."""
    from rich.text import Text

    styled = [(part, "") if isinstance(part, str) else part for part in parts]
    line = Text.assemble(*((inert(text), style) for text, style in styled))
    console.print(line, overflow="ellipsis" if cut else None, no_wrap=cut)


def inert(text: str) -> str:
    """Text on one line, without characters that control a terminal or that nobody can see."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)


def show_question(console: "Console", result: dict[str, Any]) -> None:
    """Print the question."""
    say(console, (result["question"], "bold"))


def show_decision(console: "Console", decision: Decision) -> None:
    """Print whether evidence was wanted, and why."""
    say(console, (f"  {_decision(decision)}", "dim"))


def show_documents(
    console: "Console",
    letter: str,
    documents: Sequence[Document],
    *,
    scores: Sequence[Styled] = (),
    addresses: bool = False,
) -> None:
    """Print a line for each document, numbered after ``letter``, with its score where given."""
    for number, document in enumerate(documents, start=1):
        title, source = title_of(document), source_of(document)
        name = place(title, source) if addresses else title or source
        text = " ".join(document.page_content.split())
        score = (scores[number - 1], "  ") if scores else ()
        say(
            console,
            (f"  {f'{letter}{number}':<3} ", "dim"),
            *score,
            f"{name}: ",
            (text, "dim"),
            cut=True,
        )


def show_candidates(console: "Console", candidates: list[Candidate], letter: str) -> None:
    """Print the table of candidates; ``letter`` is what their passages are numbered after.

    A score of a hard label, without probabilities, is marked with an h.
    """
    console.print(_table(candidates, letter))


def show_answer(console: "Console", result: dict[str, Any]) -> None:
    """Print the cited answer and its citations, or why there are none."""
    style = "bold green" if result.get("constraints_met", True) else "bold yellow"
    for paragraph in result["cited_answer"].splitlines():
        say(console, "  ", (paragraph, style))
    for citation in result["citations"]:
        where = place(citation["title"], citation["source"])
        say(console, (f"  [{citation['number']}] {where or 'untitled'}", "dim"))
    if reason := why_uncited(result):
        say(console, (f"  {reason}: nothing is cited", "yellow"))


def show_end(console: "Console", result: dict[str, Any], seconds: float) -> None:
    """Print a closed set's scores, the notes, and what the run took."""
    for option, score in result.get("options", {}).items():
        say(console, (f"  {option}: {score:.2f}", "dim"))
    for note in result["notes"]:
        say(console, (f"  {note}", "yellow"))
    say(console, (f"  {_cost(result.get('usage'), seconds)}", "dim"))
    console.print()


def _decision(decision: Decision) -> str:
    verb = "retrieve" if decision["retrieve"] else "no retrieval"
    if decision["probability"] is None:
        return f"{verb} (mode {decision['mode']})"
    probability, threshold = f"P(retrieve) {decision['probability']:.3f}", decision["threshold"]
    if threshold is None:
        return f"{verb}: the model's own choice, {probability}"
    sign = ">" if decision["retrieve"] else "<="
    return f"{verb}: {probability} {sign} threshold {threshold:g}"


def _table(candidates: list[Candidate], letter: str) -> "Table":
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), pad_edge=True)
    for name in ("", letter, "ISREL", "ISSUP", "ISUSE", "p(y)", "score"):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    table.add_column("candidate", overflow="fold")
    several = any(candidate["depth"] for candidate in candidates)
    if several:
        table.columns[6].header = "path"
    last = 0
    for candidate in candidates:
        if candidate["depth"] != last:
            table.add_section()
            last = candidate["depth"]
        table.add_row(
            "*" if candidate["chosen"] else " ",
            "-" if candidate["passage"] is None else str(candidate["passage"] + 1),
            *(_critique(candidate, group) for group in ("ISREL", "ISSUP", "ISUSE")),
            _number(candidate["sequence_probability"]),
            _number(candidate["path_score" if several else "score"]),
            _written(candidate),
            style="bold" if candidate["chosen"] else "dim",
        )
    return table


def _written(candidate: Candidate) -> "Text":
    from rich.text import Text

    dropped = f" ({candidate['dropped']})" if candidate["dropped"] else ""
    return Text(inert(candidate["text"] + dropped))


def _critique(candidate: Candidate, group: str) -> str:
    mark = " h" if group in candidate["hard"] else ""
    return _number(candidate[group.lower()]) + mark  # type: ignore[literal-required]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 2) + 0.0:.2f}"  # no -0.00


def _cost(usage: dict[str, int] | None, seconds: float) -> str:
    cost = f"{seconds:.2f} s"
    if usage:
        cost += (
            f", {usage['model_calls']} model calls, {usage['prompts']} prompts, "
            f"{usage['generated_tokens']} tokens written"
        )
        if usage["pruned"]:
            saved = f"about {usage['tokens_saved']} tokens saved"
            cost += f", {usage['pruned']} passages pruned ({saved})"
    return cost
