"""A result as text for a terminal: the answer with its sources, and what led to it."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from selfcorrect_rag.cli.terminal import one_row, tell
from selfcorrect_rag.intake import shown_source, source_of, title_line, title_of

DROPPED_SHOWN = 5
"""Best strips that are shown of those that were dropped; ``--json`` has them all."""
Result = Mapping[str, Any]


def show_answer(result: Result) -> None:
    """Print the cited answer, its sources with page, heading and quote, and the notes."""
    answer = result["cited_answer"] or result["answer"]
    tell(answer, bold=True)
    for citation in result["citations"]:
        tell(f"[{citation['number']}] {place(citation)}")
        quote = citation.get("quote")
        if quote and quote not in answer:
            tell(f"    “{quote}”", dim=True)
    for note in result["notes"]:
        tell(f"note: {note}", fg="yellow")


def place(citation: Mapping[str, Any]) -> str:
    """Describe where a cited text stands: title, page, heading and source."""
    title, source = title_line(citation["title"]), shown_source(citation["source"])
    page = f"page {citation['page']}" if citation.get("page") else ""
    heading = str(citation.get("heading") or "").removeprefix(title).removeprefix(" > ")
    parts = [title, page, heading, source if source != title else ""]
    return ", ".join(filter(None, parts)) or "untitled"


def show_explanation(result: Result, source: str, answers: str, seconds: float) -> None:
    """Print what led to the answer: decision, passages with grades, strips, candidates, costs.

    Args:
        result: of any graph.
        source: the name of the index.
        answers: the name of the model.
        seconds: what the run took.
    """
    width = shutil.get_terminal_size().columns
    rows: list[str] = []
    retrieval = result.get("retrieval") or {}
    if retrieval:
        rows.append(f"retrieval: {_decision(retrieval)}")
    if result.get("action"):
        best = max((g["score"] for g in result["grades"] if g["score"] is not None), default=None)
        rows.append(f"action: {result['action']}, best score {_number(best, 3)}")
    rows += _documents(f"passages from {source}", "P", result["passages"], result.get("grades"))
    rows += _strips("P", result.get("strips") or [])
    if result.get("web_query"):
        searched = "nothing from" if result.get("web_failure") else "searched"
        rows.append(f"{searched} {result['web_source']} for: {result['web_query']}")
        rows += _documents("web results", "W", result["web_results"])
        rows += _strips("W", result.get("web_strips") or [])
    rows += _documents("knowledge", "K", result.get("knowledge") or [])
    if result.get("rationale"):
        rows += ["rationale:", *(f"  {line}" for line in result["rationale"].splitlines())]
    rows += _candidates(result.get("candidates") or [])
    rows += [f"option {name}: {score:.2f}" for name, score in (result.get("options") or {}).items()]
    for row in rows:
        tell(one_row(row, width) if not row.startswith(" ") else row[: width - 1].rstrip())
    usage = result["usage"]
    steps = " > ".join(step["step"] for step in result["route"])
    tell(f"steps: {steps}", dim=True)
    read, written = usage["prompt_tokens"], usage["generated_tokens"]
    known = None not in (read, written)
    tokens = f"{read} tokens read, {written} written" if known else "tokens not reported"
    tell(f"{answers}: {usage['model_calls']} model calls, {tokens}, {seconds:.1f} s", dim=True)


def _decision(retrieval: Mapping[str, Any]) -> str:
    probability = retrieval.get("probability")
    verb = "yes" if retrieval.get("retrieve") else "no"
    if probability is None:
        return f"{verb} ({retrieval.get('mode', 'always')})"
    threshold = retrieval.get("threshold")
    return f"{verb}, P(Retrieval) {probability:.2f}, threshold {_number(threshold)}"


def _documents(
    heading: str, letter: str, documents: Sequence[Any], grades: Sequence[Any] | None = None
) -> Iterator[str]:
    if documents:
        yield f"{heading}:"
    for i, document in enumerate(documents):
        score = f"{_number(grades[i]['score'], 3):>6} " if grades and i < len(grades) else ""
        name = title_of(document) or source_of(document)
        text = " ".join(document.page_content.split())
        yield f"  {letter}{i + 1:<3}{score} {name}: {text}"


def _strips(letter: str, strips: Sequence[Any]) -> Iterator[str]:
    kept = [strip for strip in strips if strip["kept"]]
    dropped = sorted(
        (strip for strip in strips if not strip["kept"]), key=lambda strip: -(strip["score"] or 0.0)
    )
    if strips:
        yield f"strips: {len(kept)} of {len(strips)} kept"
    for strip in (*kept, *dropped[:DROPPED_SHOWN]):
        mark = "+" if strip["kept"] else "-"
        text = " ".join(strip["text"].split())
        yield f"  {mark} {letter}{strip['document'] + 1:<3}{_number(strip['score'], 3):>6}  {text}"


def _candidates(candidates: Sequence[Any]) -> Iterator[str]:
    """The table of candidates, by segment; the chosen ones are marked with ``*``."""
    if not candidates:
        return
    groups = list(candidates[0]["critique"])
    yield "candidates:"
    yield "  " + "".join(f"{name:>7}" for name in ("", "text", *groups, "p(y)", "score"))
    for candidate in candidates:
        passage = candidate["passage"]
        numbers = [
            "-" if passage is None else str(passage + 1),
            *(_number(candidate["critique"].get(group)) for group in groups),
            _number(candidate["sequence_probability"]),
            _number(candidate["path_score"]),
        ]
        mark = "*" if candidate["chosen"] else ""
        dropped = f" ({candidate['dropped']})" if candidate["dropped"] else ""
        text = " ".join(candidate["text"].split())
        cells = "".join(f"{cell:>7}" for cell in (f"{mark} {candidate['depth'] + 1}", *numbers))
        yield f"  {cells}  {text}{dropped}"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # no -0.00
