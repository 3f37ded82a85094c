"""A result as a person reads it in a terminal."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document

from selfcorrect_rag.errors import require
from selfcorrect_rag.render import reading
from selfcorrect_rag.render.reasons import LEGEND, left_out, path_sum, score_sum
from selfcorrect_rag.state.costs import Cost, total
from selfcorrect_rag.state.crag import Strip
from selfcorrect_rag.state.self_rag import Candidate
from selfcorrect_rag.state.sources import place, source_of, title_of

if TYPE_CHECKING:
    from rich.console import Console

Styled = str | tuple[str, str]
"""Text, or text and its style."""
COLOURS = {"correct": "green", "incorrect": "red", "ambiguous": "yellow"}
VERDICTS = {"useful": "green", "dismissed": "red"}
DROPPED_SHOWN = 5
"""Best strips of those that were dropped; ``--json`` has them all."""


def console() -> "Console":
    """The terminal that results are printed in."""
    made: Console = require("rich.console", "demo").Console(highlight=False)
    return made


def show_run(
    console: "Console", result: Mapping[str, Any], seconds: float, source: str, answers: str
) -> None:
    """Print a result of any graph: what led to the answer, the cited answer, and what it took.

    ``source`` and ``answers`` are the names of the index and of the model that answers.
    """
    graph = reading.graph_of(result)
    say(console, (result["question"], "bold"))
    if decided := reading.decision(result):
        say(console, (f"  {': '.join(decided)}", "dim"))
    if graph == "instruct_rag":
        _show_rationale(console, result, source)
    elif graph == "self_rag":
        if result["passages"]:
            say(console, (f"  passages from {source}:", "dim"))
            show_documents(console, "P", result["passages"])
    elif graph == "crag" or result["action"] or result["strips"]:
        _show_correction(console, result, source)
    if graph in ("self_rag", "self_crag"):
        show_candidates(console, result["candidates"], "K" if graph == "self_crag" else "P")
    _show_answer(console, result)
    for option, score in result.get("options", {}).items():
        say(console, (f"  {option}: {score:.2f}", "dim"))
    for reason in left_out(result):
        say(console, (f"  {reason}", "dim"))
    for note in result["notes"]:
        say(console, (f"  {note}", "yellow"))
    cost = ", ".join(reading.cost({**result, "seconds": seconds}))
    say(console, (f"  {answers}: {cost}", "dim"))
    console.print()


def show_turn(console: "Console", result: Mapping[str, Any]) -> None:
    """Print a turn of a conversation: how its question was read where it was rewritten, the cited
    answer, and notes."""
    if result["question"] != result["original_question"]:
        say(console, (f"  asked as: {result['question']}", "dim"))
    _show_answer(console, result)
    for note in result["notes"]:
        say(console, (f"  {note}", "yellow"))
    console.print()


def say(console: "Console", *parts: Styled, cut: bool = False) -> None:
    """Print a line of parts, inert whatever they hold; ``cut`` to the width of the terminal, or
    wrapped below its own beginning."""
    from rich.text import Text

    styled = [(part, "") if isinstance(part, str) else part for part in parts]
    line = Text.assemble(*((inert(text), style) for text, style in styled))
    indent = 0 if cut else len(line.plain) - len(line.plain.lstrip())
    rows = [line] if cut else line[indent:].wrap(console, max(1, console.width - indent))
    for row in rows:
        shown = Text(" " * indent) + row
        console.print(shown, overflow="ellipsis" if cut else None, no_wrap=cut)


def inert(text: str) -> str:
    """Text on one line, without characters that control a terminal or that nobody can see."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in text)


def show_documents(
    console: "Console",
    letter: str,
    documents: Sequence[Document],
    *,
    scores: Sequence[Styled] = (),
    addresses: bool = False,
) -> None:
    """Print a line for each document, numbered after ``letter``, with its score where given."""
    for i, document in enumerate(documents):
        title, source = title_of(document), source_of(document)
        name = place(title, source) if addresses else title or source
        text = " ".join(document.page_content.split())
        score = (scores[i], "  ") if scores else ()
        number = (f"  {f'{letter}{i + 1}':<3} ", "dim")
        say(console, number, *score, f"{name}: ", (text, "dim"), cut=True)


def show_candidates(console: "Console", candidates: Sequence[Candidate], letter: str) -> None:
    """Print the table of candidates; ``letter`` is what their passages are numbered after.

    Those of a long answer stand under their segment, and under the beam that they go on from. A
    score of a hard label, without probabilities, is marked with an h.
    """
    from rich.table import Table
    from rich.text import Text

    several = any(candidate["depth"] for candidate in candidates)
    table = Table(box=None, padding=(0, 1), pad_edge=True)
    score = "path" if several else "score"
    groups = list(candidates[0]["critique"]) if candidates else []
    for name in ("", letter, *groups, "p(y)", score):
        table.add_column(name, justify="left" if not name else "right", no_wrap=True)
    table.add_column("candidate", overflow="fold")
    for (depth, _), beam in groupby(candidates, key=itemgetter("depth", "beam")):
        first, *others = beam
        if several:
            before = first["parent"]
            after = "" if before is None else f", after “{candidates[before]['text']}”"
            table.add_row(
                *[""] * (len(groups) + 4), Text(f"segment {depth + 1}{inert(after)}", "cyan")
            )
        for candidate in (first, *others):
            dropped = f" ({candidate['dropped']})" if candidate["dropped"] else ""
            table.add_row(
                "*" if candidate["chosen"] else " ",
                "-" if candidate["passage"] is None else str(candidate["passage"] + 1),
                *(_critique(candidate, group) for group in groups),
                _number(candidate["sequence_probability"]),
                _number(candidate["path_score" if several else "score"]),
                Text(inert(candidate["text"] + dropped)),
                style="bold" if candidate["chosen"] else "dim",
            )
    console.print(table)


def show_sums(console: "Console", result: Mapping[str, Any]) -> None:
    """Print how the score of each candidate was summed, and its path's, and what the terms mean."""
    for candidate in result["candidates"]:
        say(console, "  ", candidate["text"], cut=True)
        for name, summed in (("score", score_sum(candidate)), ("path", path_sum(candidate))):
            if summed:
                say(console, (f"    {name}: {summed}", "dim"))
    for name, meaning in LEGEND.items():
        say(console, (f"  {name}: {meaning}", "dim"))


def show_costs(console: "Console", result: Mapping[str, Any], waited: float) -> None:
    """Print what each step cost, and their sum; a dash stands for tokens that no model said.

    ``waited`` are the seconds in all; those of no step, such as loading, have a row of their own.
    """
    from rich.table import Table

    def row(step: str, cost: Cost) -> tuple[str, ...]:
        tokens = (cost["prompt_tokens"], cost["generated_tokens"])
        written = ("-" if count is None else f"{count:,}" for count in tokens)
        return step, str(cost["model_calls"]), *written, f"{cost['seconds']:.3f}"

    table = Table(box=None, padding=(0, 1), pad_edge=True)
    for name in ("step", "calls", "tokens read", "tokens written", "seconds"):
        table.add_column(name, justify="left" if name == "step" else "right", no_wrap=True)
    for step, cost in result["costs"].items():
        table.add_row(*row(step, cost), style="" if cost["model_calls"] else "dim")
    costs = total(result["costs"])
    start = max(0.0, waited - costs["seconds"])
    table.add_row("start and load", "", "", "", f"{start:.3f}", style="dim")
    table.add_section()
    table.add_row(*row("in all", {**costs, "seconds": waited}), style="bold")
    console.print(table)


def _show_answer(console: "Console", result: Mapping[str, Any]) -> None:
    """Print the cited answer and its citations, or why there are none."""
    style = "bold green" if result.get("constraints_met", True) else "bold yellow"
    cited = result.get("cited_answer", result["answer"])  # InstructRAG's answer has no marks
    for paragraph in cited.splitlines():
        say(console, "  ", (paragraph, style))
    for citation in result["citations"]:
        where = place(citation["title"], citation["source"])
        say(console, (f"  [{citation['number']}] {where or 'untitled'}", "dim"))
        quote = citation.get("quote") or ""
        if quote not in cited:
            say(console, (f"      “{quote}”", "dim"))
    if reason := reading.why_uncited(result):
        say(console, (f"  {reason}: nothing is cited", "yellow"))


def _show_rationale(console: "Console", result: Mapping[str, Any], source: str) -> None:
    """Print InstructRAG's documents as the prompt numbered them, and its rationale."""
    say(console, (f"  mode {result['mode']}", "dim"))
    numbering = result["numbering"]
    if numbering:
        say(console, (f"  documents from {source}:", "dim"))
        verdicts = [reading.verdict(result, i) for i in numbering]
        scores = [(f"{v if v in VERDICTS else '':<9}", VERDICTS.get(v, "")) for v in verdicts]
        show_documents(console, "D", [result["passages"][i] for i in numbering], scores=scores)
    for paragraph in result["rationale"].splitlines():
        say(console, f"  {paragraph}")


def _show_correction(console: "Console", result: Mapping[str, Any], source: str) -> None:
    """Print CRAG's action, grades and strips, what came from the web, and the knowledge."""
    if taken := reading.action(result):
        action, why = taken
        style = f"bold {COLOURS[action]}"
        say(console, "  ", (action.capitalize(), style), (f": {why}", "dim"))
    if result["passages"]:
        say(console, (f"  passages from {source}:", "dim"))
        upper, lower = reading.thresholds(result)
        scores: list[Styled] = []
        for grade in result["grades"]:
            score, level = grade["score"], "ambiguous"
            if upper is not None and score > upper:
                level = "correct"
            elif lower is not None and score < lower:
                level = "incorrect"
            scores.append((f"{score:6.3f}", COLOURS[level]))
        show_documents(console, "P", result["passages"], scores=scores)
    _show_strips(console, "P", result, "strips")
    searched = f"{result['web_source']} for: {result['web_query']}"
    if result["web_results"]:
        say(console, (f"  searched {searched}", "dim"))
        show_documents(console, "W", result["web_results"], addresses=True)
    elif result["web_query"]:
        say(console, (f"  nothing from {searched}", "yellow"))
    _show_strips(console, "W", result, "web_strips")
    if result["knowledge"]:
        say(console, ("  knowledge:", "dim"))
        show_documents(console, "K", result["knowledge"])


def _show_strips(console: "Console", letter: str, result: Mapping[str, Any], key: str) -> None:
    strips: Sequence[Strip] = result[key]
    if not strips:
        return
    kept = [strip for strip in strips if strip["kept"]]
    dropped = [strip for strip in strips if not strip["kept"]]
    dropped.sort(key=lambda strip: -(strip["score"] or 0.0))
    say(console, (f"  strips: {len(kept)} of {len(strips)} kept", "dim"))
    for strip in (*kept, *dropped[:DROPPED_SHOWN]):
        mark, style = ("+", "") if strip["kept"] else ("-", "dim")
        document = f"{letter}{strip['document'] + 1}"
        score = _number(strip["score"], 3)
        say(console, (f"  {mark} {document:<3} {score:>6}  {strip['text']}", style), cut=True)
    if len(dropped) > DROPPED_SHOWN:
        say(console, (f"  and {len(dropped) - DROPPED_SHOWN} more dropped", "dim"))


def _critique(candidate: Candidate, group: str) -> str:
    mark = " h" if group in candidate["hard"] else ""
    return _number(candidate["critique"].get(group)) + mark


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # no -0.00
