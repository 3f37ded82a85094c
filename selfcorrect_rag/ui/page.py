"""Renders a run as one self-contained HTML page, for a file, a notebook or the local page."""

import base64
import hashlib
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.errors import require
from selfcorrect_rag.intake import shown_source, source_of, title_line, title_of, web_address
from selfcorrect_rag.settings import GRAPHS
from selfcorrect_rag.ui import visible

Result = Mapping[str, Any]
"""A graph's result, or the JSON of one."""
TITLES = {name: kind.graph for name, kind in GRAPHS.items()}
_MARK = re.compile(r"\[(\d{1,3})\]")


@cache
def templates() -> Any:
    """Return the environment of all templates: autoescaped, and every text made visible."""
    jinja2 = require("jinja2", "ui")
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("selfcorrect_rag.ui"),
        autoescape=True,
        finalize=_visible_text,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.ChainableUndefined,  # any key of a run may be missing
    )
    made.filters["number"] = number
    made.filters["words"] = lambda name: str(name).replace("_", " ").capitalize()
    return made


def _visible_text(value: object) -> object:
    """Make a text visible; not markup, such as a macro's, or a field's value behind ``|e``."""
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def number(value: object, digits: int = 2) -> str:
    """Return a number with its decimals, without -0.00; a dash for anything else."""
    return f"{round(value, digits) + 0.0:.{digits}f}" if isinstance(value, int | float) else "–"


@cache
def style() -> str:
    """Return the style sheet of all pages."""
    return files("selfcorrect_rag.ui").joinpath("style.css").read_text(encoding="utf-8")


def render_run(result: Result) -> str:
    """Render a run as one page, with no script and no request to anywhere.

    Args:
        result: of any graph, or the JSON of ``ask --json``. Any key may be missing, as in a run
            that was interrupted.

    Returns:
        HTML. All text of the run is escaped; characters that reorder or hide text are shown by
        their code points; only http and https addresses become links; texts over 20,000 characters
        are cut.
    """
    template = templates().get_template("page.html")
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    page: str = template.render(run=view(result), style=style(), style_hash=digest)
    return page


@dataclass(frozen=True)
class RunPage:
    """A page that a notebook shows in a frame, so that styles do not mix."""

    html: str = field(repr=False)

    def _repr_html_(self) -> str:
        """Return the frame, in which no script runs."""
        return (
            f'<iframe title="A run" srcdoc="{html.escape(self.html)}" '
            'sandbox="allow-popups allow-popups-to-escape-sandbox" '
            'style="width:100%;height:640px;border:0;resize:vertical"></iframe>'
        )


def show_run(result: Result) -> RunPage:
    """Return the page of :func:`render_run` for a notebook: make it the last value of a cell."""
    return RunPage(render_run(result))


def view(result: Result) -> dict[str, Any]:
    """Return a result with the values that pages and terminals show."""
    graph = graph_of(result)
    knowledge = "knowledge" if "crag" in graph else "passages"
    citations = [_citation(citation) for citation in result.get("citations") or []]
    answer = result.get("cited_answer") or result.get("answer") or ""
    shown = [("passages", "strips"), ("web_results", "web_strips"), ("knowledge", "")]
    return {
        **result,
        "graph": TITLES[graph],
        "question": result.get("question") or result.get("original_question") or "",
        "answer": _linked(answer, citations),
        "citations": citations,
        "paused": [pause.value["query"] for pause in result.get("__interrupt__") or []],
        "segments": segments(result.get("candidates") or []),
        "knowledge": knowledge,
        "documents": {key: _documents(result, key, strips) for key, strips in shown},
    }


def graph_of(result: Result) -> str:
    """Tell by its keys which graph a result is of."""
    if "rationale" in result:
        return "instruct_rag"
    if "grades" in result or "knowledge" in result:
        return "self_crag" if "candidates" in result else "crag"
    return "self_rag"


def json_value(value: Any) -> Any:
    """Return a JSON value for an object in a result, as the ``default`` of ``json.dumps``."""
    if isinstance(value, Document):
        return {"id": value.id, "text": value.page_content, "metadata": value.metadata}
    return str(value)


def segments(candidates: Sequence[Result]) -> list[list[Result]]:
    """Return the candidates by segment, best path first."""

    def order(row: Result) -> tuple[int, bool, float]:
        score = row.get("path_score")
        return row.get("depth", 0), score is None, -(score or 0.0)

    rows = sorted(candidates, key=order)
    return [list(group) for _, group in groupby(rows, key=lambda row: row.get("depth", 0))]


def _linked(text: str, citations: Sequence[Result]) -> list[tuple[str, Any]]:
    """Split an answer at its marks: pairs of a text and the citation of the mark behind it."""
    by_number = {str(citation["number"]): citation for citation in citations}
    parts, last = [], 0
    for match in _MARK.finditer(text):
        if match[1] in by_number:
            parts.append((text[last : match.start()], by_number[match[1]]))
            last = match.end()
    return [*parts, (text[last:], None)] if text else []


def _citation(citation: Result) -> dict[str, Any]:
    source, title = shown_source(citation.get("source")), title_line(citation.get("title"))
    heading = str(citation.get("heading") or "").removeprefix(title).removeprefix(" > ")
    return {
        **citation,
        "title": title or source or "untitled",
        "source": source,
        "url": web_address(source),
        "heading": heading,
    }


def _documents(result: Result, key: str, strips: str) -> list[dict[str, Any]]:
    """The documents under a key, each with its grade and its strips."""
    grades = (result.get("grades") or []) if key == "passages" else []
    rows = []
    for i, document in enumerate(result.get(key) or []):
        if isinstance(document, Mapping):  # the JSON of one
            text = str(document.get("text", document.get("page_content", "")))
            document = Document(text, metadata=document.get("metadata") or {})
        source = source_of(document)
        rows.append(
            {
                "text": document.page_content,
                "title": title_of(document) or source or "untitled",
                "source": source,
                "url": web_address(source),
                "grade": grades[i].get("score") if i < len(grades) else None,
                "strips": [s for s in result.get(strips) or [] if s.get("document") == i],
            }
        )
    return rows
