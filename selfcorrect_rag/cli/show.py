"""A result as text for a terminal: the answer with its sources, and what led to it."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from selfcorrect_rag.cli.terminal import one_row, tell
from selfcorrect_rag.intake import shown_source, source_of, title_line, title_of

Result = Mapping[str, Any]


def show_answer(result: Result) -> None:
    """Print the cited answer, its sources with page, heading and quote, and the notes."""
    answer = result["cited_answer"] or result["answer"]
    tell(answer, bold=True)
    for citation in result["citations"]:
        title, source = title_line(citation["title"]), shown_source(citation["source"])
        page = f"page {citation['page']}" if citation.get("page") else ""
        heading = str(citation.get("heading") or "").removeprefix(title).removeprefix(" > ")
        place = filter(None, [title, page, heading, source if source != title else ""])
        tell(f"[{citation['number']}] {', '.join(place) or 'untitled'}")
        quote = citation.get("quote")
        if quote and quote not in answer:
            tell(f"    “{quote}”", dim=True)
    for note in result["notes"]:
        tell(f"note: {note}", fg="yellow")


def show_explanation(result: Result, source: str, answers: str) -> None:
    """Print what led to the answer: decision, passages with grades, strips, candidates, costs.

    Args:
        result: of any graph, with ``seconds``.
        source: the name of the index.
        answers: the name of the model.
    """
    width = shutil.get_terminal_size().columns
    for row in _rows(result, source):
        tell(row[: width - 1].rstrip() if row.startswith(" ") else one_row(row, width))
    usage = result["usage"]
    tell(f"steps: {' > '.join(step['step'] for step in result['route'])}", dim=True)
    read, written = usage["prompt_tokens"], usage["generated_tokens"]
    known = None not in (read, written)
    tokens = f"{read} tokens read, {written} written" if known else "tokens not reported"
    calls = f"{usage['model_calls']} model calls, {tokens}, {result['seconds']:.1f} s"
    tell(f"{answers}: {calls}", dim=True)


def _rows(result: Result, source: str) -> Iterator[str]:
    if retrieval := result.get("retrieval"):
        verb = "yes" if retrieval.get("retrieve") else "no"
        probability = retrieval.get("probability")
        threshold = _number(retrieval.get("threshold"))
        why = f", P(Retrieval) {_number(probability)}, threshold {threshold}"
        mode = f" ({retrieval.get('mode', 'always')})"
        yield f"retrieval: {verb}{mode if probability is None else why}"
    if result.get("action"):
        best = max((g["score"] for g in result["grades"] if g["score"] is not None), default=None)
        yield f"action: {result['action']}, best score {_number(best, 3)}"
    yield from _documents(f"passages from {source}", "P", result["passages"], result.get("grades"))
    yield from _strips(result.get("strips") or [])
    if result.get("web_query"):
        searched = "nothing from" if result.get("web_failure") else "searched"
        yield f"{searched} {result['web_source']} for: {result['web_query']}"
        yield from _documents("web results", "W", result["web_results"])
        yield from _strips(result.get("web_strips") or [])
    yield from _documents("knowledge", "K", result.get("knowledge") or [])
    if result.get("rationale"):
        yield "rationale:"
        yield from (f"  {line}" for line in result["rationale"].splitlines())
    yield from _candidates(result.get("candidates") or [])
    for name, score in (result.get("options") or {}).items():
        yield f"option {name}: {score:.2f}"


def _documents(
    heading: str, letter: str, documents: Sequence[Any], grades: Sequence[Any] | None = None
) -> Iterator[str]:
    if documents:
        yield f"{heading}:"
    for i, document in enumerate(documents):
        score = f"{_number(grades[i]['score'], 3):>6} " if grades and i < len(grades) else ""
        name = title_of(document) or source_of(document)
        yield f"  {letter}{i + 1:<3}{score} {name}: {' '.join(document.page_content.split())}"


def _strips(strips: Sequence[Any]) -> Iterator[str]:
    if strips:
        yield f"strips: {sum(strip['kept'] for strip in strips)} of {len(strips)} kept"


def _candidates(candidates: Sequence[Any]) -> Iterator[str]:
    """The table of candidates, by segment; the chosen ones are marked with ``*``."""
    if not candidates:
        return
    groups = list(candidates[0]["critique"])
    yield "candidates:"
    yield "  " + "".join(f"{name:>7}" for name in ("", "text", *groups, "p(y)", "score"))
    for candidate in candidates:
        passage = candidate["passage"]
        cells = [
            f"{'*' if candidate['chosen'] else ''} {candidate['depth'] + 1}",
            "-" if passage is None else str(passage + 1),
            *(_number(candidate["critique"].get(group)) for group in groups),
            _number(candidate["sequence_probability"]),
            _number(candidate["path_score"]),
        ]
        dropped = f" ({candidate['dropped']})" if candidate["dropped"] else ""
        text = " ".join(candidate["text"].split())
        yield f"  {''.join(f'{cell:>7}' for cell in cells)}  {text}{dropped}"


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{round(value, digits) + 0.0:.{digits}f}"  # no -0.00
