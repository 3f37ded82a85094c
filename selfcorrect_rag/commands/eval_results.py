"""What ``selfcorrect-rag eval`` prints: estimates, results, and what is left."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from selfcorrect_rag.commands.terminal import as_json, tell
from selfcorrect_rag.evaluation.component_page import component_rows
from selfcorrect_rag.evaluation.costs import Spent
from selfcorrect_rag.evaluation.page import COMPARED, JUDGED_COLUMNS, comparison_row, judged_rows
from selfcorrect_rag.evaluation.report import REPORT
from selfcorrect_rag.evaluation.tables import shown_interval

FEW_PAIRS = 3
"""Pairs of methods that are all printed."""


def tell_estimate(estimate: Mapping[str, Spent], out: Path) -> None:
    """Print what each method or judge adds to what the folder ``out`` still costs."""
    calls, tokens = (sum(column) for column in zip(*estimate.values(), strict=True))
    for name, spent in estimate.items():
        tell(f"{name}: {_about(spent.calls, spent.tokens)}", sys.stderr)
    tell(f"left to ask for {out}: {_about(calls, tokens)}", sys.stderr)


def _about(calls: float, tokens: float) -> str:
    return f"about {calls:,.0f} model calls, {tokens:,.0f} tokens"


def tell_left(failed: int, stopped: str) -> int:
    """Print what failed and which bound ended it; the exit code, 1 where there is either."""
    if failed:
        tell(f"{failed:,} failed, and why is in their rows: run it again", sys.stderr)
    if stopped:
        tell(f"stopped by {stopped}: the same command goes on", sys.stderr)
    return 1 if failed or stopped else 0


def tell_made(made: Mapping[str, Any], folder: Path, is_json: bool) -> None:
    """Print a summary, as tables or as JSON, and where the page is."""
    if is_json:
        tell(as_json(made, indent=2))
    else:
        _tell_results(made)
    tell(f"the answers and the page are in {folder}: {folder / REPORT}", sys.stderr)


def _tell_results(made: Mapping[str, Any]) -> None:
    methods = made["methods"]
    names = list(dict.fromkeys(n for method in methods.values() for n in method["metrics"]))
    rows = [
        [name, *(_value(method["metrics"][n]) for n in names), *_behaviour(method)]
        for name, method in methods.items()
    ]
    columns = ["method", *names, "answered", "refused", "failed", "calls", "seconds"]
    tell_table(columns, rows)
    asked, calls = (sum(m[c] for m in methods.values()) for c in ("asked_calls", "model_calls"))
    if asked < calls:
        tell(f"{asked:,} of {calls:,} calls were made: methods share equal ones")
    if parts := component_rows(made["components"], short=True):
        tell_table(["part", *methods], parts, "components")
    for metric, pairs in made["comparisons"].items():
        _tell_pairs(metric, pairs)
    for judge, said in made.get("judges", {}).items():
        tell_table(JUDGED_COLUMNS, judged_rows(said), f"judge of {judge}: {said['model']}")


def _tell_pairs(metric: str, pairs: Sequence[Mapping[str, Any]]) -> None:
    """Print all of a few pairs; of many, those that can be told apart, and how many others."""
    shown = [p for p in pairs if len(pairs) <= FEW_PAIRS or p["told_apart"]]
    if shown:
        tell_table(COMPARED, map(comparison_row, shown), metric)
    if left := len(pairs) - len(shown):
        none = f"\n{metric}: none of {left} pairs can be told apart (see the page)"
        tell(f"{left} other pairs cannot be told apart (see the page)" if shown else none)


def _value(figure: Mapping[str, Any]) -> str:
    if figure["value"] is None:
        return "-"
    return f"{figure['value']:.3f} {shown_interval(figure['interval'])}".rstrip()


def _behaviour(method: Mapping[str, Any]) -> list[str]:
    shown = ("answered", "refused", "failed", "model_calls")
    return [*(f"{method[name]:,}" for name in shown), f"{method['seconds']:.1f}"]


def tell_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print aligned columns below their names."""
    table = [list(columns), *map(list, rows)]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    if title:
        tell(f"\n{title}")
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        tell("  ".join(cells).rstrip())
