"""Citations: the relevant texts that an answer was written from."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.intake import source_of, title_line, title_of
from selfcorrect_rag.prompts.reading import is_refusal, sentence_stating, without_marks
from selfcorrect_rag.state import Candidate, Citation, Source

RELEVANT = 0.5
"""Minimum ISREL score of a cited passage."""


def citation(
    number: int,
    passage: int,
    document: Document,
    segments: Sequence[int],
    said: Sequence[str],
    question: str,
) -> Citation:
    """Return a citation of a document, with title and source sanitised for display.

    ``said`` is what was written from it: the first that its text has word for word is quoted, and
    the question chooses among several sentences that say it.
    """
    text, found = document.page_content, document.metadata
    quotes = (sentence_stating(text, each, question) for each in said)
    cited = Citation(
        number=number,
        passage=passage,
        title=title_of(document),
        source=source_of(document),
        text=text,
        quote=next(filter(None, quotes), ""),
        segments=list(segments),
    )
    if isinstance(found.get("page"), int):
        cited["page"] = found["page"]
    if isinstance(found.get("heading"), str):
        cited["heading"] = title_line(found["heading"])
    return cited


def cited_passages(
    segments: Sequence[Candidate], state: Mapping[str, Any], source: Source
) -> list[Citation]:
    """Return one citation per passage that segments were generated from, in order of appearance.

    A segment cites its passage if the critique calls it relevant (ISREL of at least 0.5). One that
    continues with the same passage without an ISREL inherits the segment's before. Silence and
    refusals cite nothing; nor is knowledge cited that CRAG's evaluator has judged irrelevant.
    """
    judged = state["judged"] if source == "knowledge" else []
    written: dict[int, list[Candidate]] = {}
    relevance: float | None = None
    for segment in segments:
        isrel, passage, text = segment["critique"].get("ISREL"), segment["passage"], segment["text"]
        if segment["step"] != "continue" or isrel is not None:
            relevance = isrel
        if passage is None or relevance is None or relevance < RELEVANT:
            continue
        is_irrelevant = judged[passage : passage + 1] == ["irrelevant"]
        if not is_irrelevant and text.strip() and not is_refusal(text):
            written.setdefault(passage, []).append(segment)
    cited = []
    for number, (passage, its) in enumerate(written.items(), start=1):
        depths, said = [s["depth"] for s in its], [s["text"] for s in its]
        document, question = state[source][passage], state.get("question") or ""
        cited.append(citation(number, passage, document, depths, said, question))
    return cited


def cited_text(segments: Sequence[Candidate], citations: Sequence[Citation]) -> str:
    """The segments, with ``[n]`` after each that cites a passage.

    Citation marks in a segment's own text, copied from a page, become ``[3?]``.
    """
    texts = []
    for segment in segments:
        numbers = [c["number"] for c in citations if segment["depth"] in c["segments"]]
        texts.append(without_marks(segment["text"]) + "".join(f" [{n}]" for n in numbers))
    return " ".join(texts)
