"""What a question cost, step by step, as a person reads it in a terminal."""

from typing import TYPE_CHECKING, Any

from selfcorrect_rag.state.costs import Cost, total

if TYPE_CHECKING:
    from rich.console import Console

HEADINGS = ("step", "calls", "tokens read", "tokens written", "seconds")


def show_costs(console: "Console", result: dict[str, Any]) -> None:
    """Print a line for each step and their sum; a dash stands for tokens that nobody told."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 1), pad_edge=True)
    for name in HEADINGS:
        table.add_column(name, justify="left" if name == "step" else "right", no_wrap=True)
    for step, cost in result["costs"].items():
        table.add_row(*_row(step, cost), style="" if cost["model_calls"] else "dim")
    table.add_section()
    table.add_row(*_row("in all", total(result["costs"])), style="bold")
    console.print(table)


def _row(step: str, cost: Cost) -> tuple[str, ...]:
    tokens = (cost["prompt_tokens"], cost["generated_tokens"])
    told = ("-" if number is None else f"{number:,}" for number in tokens)
    return step, str(cost["model_calls"]), *told, f"{cost['seconds']:.3f}"
