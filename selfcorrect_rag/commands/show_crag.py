"""Results of CRAG and Self-CRAG as a person reads them in a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from selfcorrect_rag.commands.show import (
    Styled,
    say,
    show_answer,
    show_candidates,
    show_decision,
    show_documents,
    show_end,
    show_question,
)
from selfcorrect_rag.state.crag import Strip

if TYPE_CHECKING:
    from rich.console import Console

COLOURS = {"correct": "green", "incorrect": "red", "ambiguous": "yellow"}
DROPPED_SHOWN = 5
"""Best strips of those that were dropped; ``--json`` has them all."""


def show_crag(console: "Console", result: dict[str, Any], seconds: float, source: str) -> None:
    """Print the action and what led to it, what was corrected, the cited answer and its cost."""
    show_question(console, result)
    _show_correction(console, result, source)
    show_answer(console, result)
    show_end(console, result, seconds)


def show_self_crag(console: "Console", result: dict[str, Any], seconds: float, source: str) -> None:
    """The same, with the retrieval decision before it and the candidates after."""
    show_question(console, result)
    show_decision(console, result["retrieval"])
    if result["action"] or result["strips"]:
        _show_correction(console, result, source)
    show_candidates(console, result["candidates"], "K")
    show_answer(console, result)
    show_end(console, result, seconds)


def _show_correction(console: "Console", result: dict[str, Any], source: str) -> None:
    if result["action"]:
        _show_action(console, result)
    if result["passages"]:
        say(console, (f"  passages from {source}:", "dim"))
        scores = [_graded(grade["score"], result["thresholds"]) for grade in result["grades"]]
        show_documents(console, "P", result["passages"], scores=scores)
    _show_strips(console, "P", result["strips"])
    if result["web_results"]:
        say(console, (f"  searched {result['web_source']} for: {result['web_query']}", "dim"))
        show_documents(console, "W", result["web_results"], addresses=True)
    elif result["web_query"]:
        say(
            console, (f"  nothing from {result['web_source']} for: {result['web_query']}", "yellow")
        )
    _show_strips(console, "W", result["web_strips"])
    if result["knowledge"]:
        say(console, ("  knowledge:", "dim"))
        show_documents(console, "K", result["knowledge"])


def _show_action(console: "Console", result: dict[str, Any]) -> None:
    action, thresholds = result["action"], result["thresholds"]
    best = max((grade["score"] for grade in result["grades"]), default=None)
    say(
        console,
        "  ",
        (action.capitalize(), f"bold {COLOURS[action]}"),
        (": nothing was retrieved" if best is None else f": best score {best:.3f}", "dim"),
        (f"; Correct above {thresholds['upper']:.3g}", "dim"),
        (f", Incorrect below {thresholds['lower']:.3g}", "dim"),
    )


def _graded(score: float, thresholds: dict[str, float]) -> Styled:
    if score > thresholds["upper"]:
        return f"{score:6.3f}", COLOURS["correct"]
    below = score < thresholds["lower"]
    return f"{score:6.3f}", COLOURS["incorrect" if below else "ambiguous"]


def _show_strips(console: "Console", letter: str, strips: Sequence[Strip]) -> None:
    if not strips:
        return
    kept = [strip for strip in strips if strip["kept"]]
    dropped = [strip for strip in strips if not strip["kept"]]
    dropped.sort(key=lambda strip: -(strip["score"] or 0.0))
    say(console, (f"  strips: {len(kept)} of {len(strips)} kept", "dim"))
    for strip in (*kept, *dropped[:DROPPED_SHOWN]):
        mark, style = ("+", "") if strip["kept"] else ("-", "dim")
        of = f"{letter}{strip['document'] + 1}"
        score = "-" if strip["score"] is None else f"{strip['score']:.3f}"
        say(console, (f"  {mark} {of:<3} {score:>6}  {strip['text']}", style), cut=True)
    if len(dropped) > DROPPED_SHOWN:
        say(console, (f"  and {len(dropped) - DROPPED_SHOWN} more dropped", "dim"))
