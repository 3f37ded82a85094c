"""Citations: the relevant texts that an answer was written from."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document

from selfcorrect_rag.intake import source_of, title_line, title_of
from selfcorrect_rag.prompts.marks import is_refusal, without_marks
from selfcorrect_rag.prompts.sentences import sentence_stating
from selfcorrect_rag.reflection import Group
from selfcorrect_rag.state import Beam, Candidate, Citation, Source

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
    """A citation of a document, with title and source sanitised for display.

    Args:
        number: as printed in the answer.
        passage: index of the document in its list of the state.
        document: what is cited.
        segments: indices of the answer's segments that were written from it.
        said: what was written from it; the first that its text has word for word is quoted.
        question: chooses among several sentences that say it.
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


def citations_of(
    segments: Sequence[Candidate],
    passages: Sequence[Document],
    question: str,
    irrelevant: Collection[int] = (),
) -> list[Citation]:
    """One citation per passage that segments were generated from, in order of appearance.

    A segment cites its passage if the critique calls it relevant (ISREL of at least 0.5). A segment
    that continues with the same passage and has no ISREL inherits the previous segment's. Without
    any ISREL the passage was not judged and is not cited. Segments without text and refusals cite
    nothing.

    Args:
        segments: an answer's segments, in order.
        passages: the list that the segments' indices refer to.
        question: what the segments answer.
        irrelevant: indices of passages judged irrelevant elsewhere.
    """
    written: dict[int, list[Candidate]] = {}
    for segment, passage in _evidence(segments):
        said = segment["text"]
        if passage not in irrelevant and said.strip() and not is_refusal(said):
            written.setdefault(passage, []).append(segment)
    return [
        citation(
            number,
            passage,
            passages[passage],
            [segment["depth"] for segment in its],
            [segment["text"] for segment in its],
            question,
        )
        for number, (passage, its) in enumerate(written.items(), start=1)
    ]


def _evidence(segments: Sequence[Candidate]) -> Iterator[tuple[Candidate, int]]:
    """The segments written from a relevant passage, each with that passage's index."""
    judged: float | None = None
    for segment in segments:
        isrel = segment["critique"].get(Group.ISREL)
        if segment["step"] != "continue" or isrel is not None:
            judged = isrel
        passage = segment["passage"]
        if passage is not None and judged is not None and judged >= RELEVANT:
            yield segment, passage


def cited_passages(
    segments: Sequence[Candidate], state: Mapping[str, Any], source: Source
) -> list[Citation]:
    """The citations of segments written from the passages at the state key ``source``.

    Knowledge that CRAG's evaluator has judged irrelevant is not cited.
    """
    judged = state["judged"] if source == "knowledge" else []
    irrelevant = {i for i, found in enumerate(judged) if found == "irrelevant"}
    return citations_of(segments, state[source], state.get("question") or "", irrelevant)


def cited_text(segments: Sequence[Candidate], citations: Sequence[Citation]) -> str:
    """The segments, with ``[n]`` after each that cites a passage.

    Citation marks in a segment's own text, copied from a page, become ``[3?]``.
    """
    return " ".join(_cited(segment, citations) for segment in segments)


def settled(beams: Sequence[Beam]) -> list[Candidate]:
    """The common prefix of all beams: its segments are part of the answer whichever beam wins."""
    paths = [[_place(segment) for segment in beam["segments"]] for beam in beams]
    best = beams[0]["segments"]
    common = 0
    while common < len(best) and all(p[: common + 1] == paths[0][: common + 1] for p in paths):
        common += 1
    return best[:common]


def _place(segment: Candidate) -> tuple[int, int, int | None]:
    return segment["depth"], segment["beam"], segment["passage"]


def _cited(segment: Candidate, citations: Sequence[Citation]) -> str:
    numbers = [c["number"] for c in citations if segment["depth"] in c["segments"]]
    return without_marks(segment["text"]) + "".join(f" [{number}]" for number in numbers)
