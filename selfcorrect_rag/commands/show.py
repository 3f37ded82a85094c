"""A result as a person reads it in a terminal."""

from typing import TYPE_CHECKING, Any

from selfcorrect_rag.extras import require
from selfcorrect_rag.state import Candidate, Decision

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def console() -> "Console":
    """Where results are printed."""
    made: Console = require("rich.console", "demo").Console(highlight=False)
    return made


def show_result(console: "Console", result: dict[str, Any], seconds: float, source: str) -> None:
    """Print the retrieval decision, passages, candidates, the cited answer and what it took."""
    from rich.markup import escape

    console.print(f"[bold]{escape(result['question'])}[/bold]")
    console.print(f"  [dim]{_decision(result['retrieval'])}[/dim]")
    if result["passages"]:
        console.print(f"  [dim]passages from {escape(source)}:[/dim]")
        for number, passage in enumerate(result["passages"], start=1):
            title = str(passage.metadata.get("title") or passage.metadata.get("source") or "")
            text = " ".join(passage.page_content.split())
            line = f"  [dim]P{number}[/dim]  {escape(title)}: [dim]{escape(text)}[/dim]"
            console.print(line, overflow="ellipsis", no_wrap=True)
    console.print(_table(result["candidates"]))
    style = "green" if result["constraints_met"] else "yellow"
    console.print(f"  [bold {style}]{escape(result['cited_answer'])}[/bold {style}]")
    for citation in result["citations"]:
        where = citation["title"] or citation["source"]
        console.print(f"  [dim]\\[{citation['number']}] {escape(where)}[/dim]")
    if not result["citations"] and result["passages"]:
        console.print("  [yellow]no passage was judged relevant: nothing is cited[/yellow]")
    for option, score in result["options"].items():
        console.print(f"  [dim]{escape(option)}: {score:.2f}[/dim]")
    for note in result["notes"]:
        console.print(f"  [yellow]{escape(note)}[/yellow]")
    console.print(f"  [dim]{_cost(result['usage'], seconds)}[/dim]\n")


def _decision(decision: Decision) -> str:
    verb = "retrieve" if decision["retrieve"] else "no retrieval"
    if decision["probability"] is None:
        return f"{verb} (mode {decision['mode']})"
    probability, threshold = f"P(retrieve) {decision['probability']:.3f}", decision["threshold"]
    if threshold is None:
        return f"{verb}: the model's own choice, {probability}"
    sign = ">" if decision["retrieve"] else "<="
    return f"{verb}: {probability} {sign} threshold {threshold:g}"


def _table(candidates: list[Candidate]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), pad_edge=True)
    for name in ("", "P", "ISREL", "ISSUP", "ISUSE", "p(y)", "score"):
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
        dropped = f" ({candidate['dropped']})" if candidate["dropped"] else ""
        table.add_row(
            "*" if candidate["chosen"] else " ",
            "-" if candidate["passage"] is None else str(candidate["passage"] + 1),
            *(_number(candidate[name]) for name in ("isrel", "issup", "isuse")),
            _number(candidate["sequence_probability"]),
            _number(candidate["path_score" if several else "score"]),
            Text(candidate["text"] + dropped),
            style="bold" if candidate["chosen"] else "dim",
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{round(value, 2) + 0.0:.2f}"  # no -0.00


def _cost(usage: dict[str, int], seconds: float) -> str:
    cost = (
        f"{seconds:.2f} s, {usage['model_calls']} model calls, {usage['prompts']} prompts, "
        f"{usage['generated_tokens']} tokens written"
    )
    if usage["pruned"]:
        cost += f", {usage['pruned']} passages pruned (about {usage['tokens_saved']} tokens saved)"
    return cost
